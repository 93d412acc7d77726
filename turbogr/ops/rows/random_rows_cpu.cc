#include <cmath>

#include "turbogr/core/philox.h"
#include "turbogr/ops/rows/random_rows_kernels.h"

namespace turbogr::ops {

void truncated_normal_row(std::uint64_t seed, std::int64_t index, double scale, std::int64_t width,
                          float* row) {
  PhiloxStream random(seed, static_cast<std::uint64_t>(index));
  for (std::int64_t c = 0; c < width; ++c) {
    double value = random.normal();
    while (std::abs(value) > 2) value = random.normal();
    row[c] = static_cast<float>(scale * value);
  }
}

}  // namespace turbogr::ops

namespace turbogr::ops::kernels {

void truncated_normal_rows(Cpu cpu, View<float, 2> table, std::int64_t first_row,
                           std::uint64_t seed, double scale) {
  parallel_ranges(
      cpu.pool, table.shape[0] - first_row, 64, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t row = first_row + begin; row < first_row + end; ++row) {
          truncated_normal_row(seed, row, scale, table.shape[1], table.data + row * table.shape[1]);
        }
      });
}

}  // namespace turbogr::ops::kernels
