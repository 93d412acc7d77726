#include "turbogr/embedding/initial_row.h"

#include <cmath>

#include "turbogr/core/philox.h"

namespace turbogr::embedding {

void write_initial_row(std::uint64_t seed, std::int64_t id, double scale, std::int64_t width,
                       float* row) {
  PhiloxStream random(seed, static_cast<std::uint64_t>(id));
  for (std::int64_t c = 0; c < width; ++c) {
    double value = random.normal();
    while (std::abs(value) > 2) value = random.normal();
    row[c] = static_cast<float>(scale * value);
  }
}

}  // namespace turbogr::embedding
