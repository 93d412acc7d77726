#include <cmath>
#include <type_traits>
#include <vector>

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

template <class T>
void truncated_normal_rows(Cpu cpu, View<T, 2> table, std::int64_t first_row, std::uint64_t seed,
                           double scale) {
  const std::int64_t width = table.shape[1];
  parallel_ranges(
      cpu.pool, table.shape[0] - first_row, 64, [&](std::int64_t begin, std::int64_t end, int) {
        std::vector<float> made(std::is_same_v<T, float> ? 0 : static_cast<std::size_t>(width));
        for (std::int64_t row = first_row + begin; row < first_row + end; ++row) {
          if constexpr (std::is_same_v<T, float>) {
            truncated_normal_row(seed, row, scale, width, table.data + row * width);
          } else {
            truncated_normal_row(seed, row, scale, width, made.data());
            for (std::int64_t c = 0; c < width; ++c) {
              table(row, c) = T(made[static_cast<std::size_t>(c)]);
            }
          }
        }
      });
}

template void truncated_normal_rows<float>(Cpu, View<float, 2>, std::int64_t, std::uint64_t,
                                           double);
template void truncated_normal_rows<bf16>(Cpu, View<bf16, 2>, std::int64_t, std::uint64_t, double);
template void truncated_normal_rows<f16>(Cpu, View<f16, 2>, std::int64_t, std::uint64_t, double);

}  // namespace turbogr::ops::kernels
