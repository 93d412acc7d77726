#include <cmath>
#include <type_traits>
#include <vector>

#include "turbogr/core/philox.h"
#include "turbogr/ops/rows/random_rows_kernels.h"

namespace turbogr::ops {

void random_row(std::uint64_t seed, std::int64_t index, RowStart start, std::int64_t width,
                float* row) {
  PhiloxStream random(seed, static_cast<std::uint64_t>(index));
  for (std::int64_t c = 0; c < width; ++c) {
    double value = start.is_uniform ? 2 * random.uniform() - 1 : random.normal();
    while (std::abs(value) > 2) value = random.normal();
    row[c] = static_cast<float>(start.scale * value);
  }
}

}  // namespace turbogr::ops

namespace turbogr::ops::kernels {

template <class T>
void random_rows(Cpu cpu, View<T, 2> table, std::int64_t first_row, std::uint64_t seed,
                 RowStart start) {
  const std::int64_t width = table.shape[1];
  parallel_ranges(
      cpu.pool, table.shape[0] - first_row, 64, [&](std::int64_t begin, std::int64_t end, int) {
        std::vector<float> made(std::is_same_v<T, float> ? 0 : static_cast<std::size_t>(width));
        for (std::int64_t row = first_row + begin; row < first_row + end; ++row) {
          if constexpr (std::is_same_v<T, float>) {
            random_row(seed, row, start, width, table.data + row * width);
          } else {
            random_row(seed, row, start, width, made.data());
            for (std::int64_t c = 0; c < width; ++c) {
              table(row, c) = T(made[static_cast<std::size_t>(c)]);
            }
          }
        }
      });
}

template void random_rows<float>(Cpu, View<float, 2>, std::int64_t, std::uint64_t, RowStart);
template void random_rows<bf16>(Cpu, View<bf16, 2>, std::int64_t, std::uint64_t, RowStart);
template void random_rows<f16>(Cpu, View<f16, 2>, std::int64_t, std::uint64_t, RowStart);

}  // namespace turbogr::ops::kernels
