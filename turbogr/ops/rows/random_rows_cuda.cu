#include "turbogr/core/philox.h"
#include "turbogr/cuda/half.cuh"
#include "turbogr/ops/rows/random_rows_kernels.h"

namespace turbogr::ops::kernels {
namespace {

// PhiloxStream, two uniform numbers (four words, one block) a normal one. A thread has a row: the
// stream is sequential, since a redrawn value moves all that follow.
template <class T>
__global__ void rows_kernel(View<T, 2> table, std::int64_t first_row, std::uint64_t seed,
                            RowStart start) {
  const std::int64_t row = first_row + std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= table.shape[0]) return;
  T* out = table.data + row * table.shape[1];
  std::uint64_t counter = 0;
  const auto uniform = [](std::uint32_t high, std::uint32_t low) {
    return static_cast<double>(((std::uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
  };
  if (start.is_uniform) {
    for (std::int64_t c = 0; c < table.shape[1]; c += 2) {
      const auto block = philox(seed, counter++, static_cast<std::uint64_t>(row));
      const double values[2] = {2 * uniform(block[0], block[1]) - 1,
                                2 * uniform(block[2], block[3]) - 1};
      for (std::int64_t j = 0; j < 2 && c + j < table.shape[1]; ++j) {
        out[c + j] = cuda::narrowed<T>(static_cast<float>(start.scale * values[j]));
      }
    }
    return;
  }
  for (std::int64_t c = 0; c < table.shape[1]; ++c) {
    double value;
    do {
      const auto block = philox(seed, counter++, static_cast<std::uint64_t>(row));
      const double radius = sqrt(-2.0 * log(1.0 - uniform(block[0], block[1])));
      value = radius * cospi(2.0 * uniform(block[2], block[3]));
    } while (fabs(value) > 2);
    out[c] = cuda::narrowed<T>(static_cast<float>(start.scale * value));
  }
}

}  // namespace

template <class T>
void random_rows(Cuda cuda, View<T, 2> table, std::int64_t first_row, std::uint64_t seed,
                 RowStart start) {
  const std::int64_t rows = table.shape[0] - first_row;
  if (rows == 0) return;
  rows_kernel<T>
      <<<static_cast<unsigned>(cuda::divide_up(rows, 64)), 64, 0, cuda::stream_of(cuda.stream)>>>(
          table, first_row, seed, start);
  cuda::check_launch("random_rows");
}

template void random_rows<float>(Cuda, View<float, 2>, std::int64_t, std::uint64_t, RowStart);
template void random_rows<bf16>(Cuda, View<bf16, 2>, std::int64_t, std::uint64_t, RowStart);
template void random_rows<f16>(Cuda, View<f16, 2>, std::int64_t, std::uint64_t, RowStart);

}  // namespace turbogr::ops::kernels
