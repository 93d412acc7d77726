// Sums over rows for parameter gradients: every block of a kernel leaves one row of partial sums,
// and these are added in order. The number of blocks depends on the number of rows alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "turbogr/core/view.h"
#include "turbogr/cuda/columns.cuh"

namespace turbogr::ops {

inline constexpr std::int64_t kColumnSumBlocks = 1056;  // eight for each SM of a Hopper GPU

inline std::int64_t column_sum_blocks(std::int64_t rows, std::int64_t rows_a_block) {
  return std::min(kColumnSumBlocks, cuda::divide_up(rows, rows_a_block));
}

// total += the sum of `count` rows of parts, as 32 interleaved runs that are then added in order.
template <class A>
__global__ void add_parts_kernel(const A* parts, std::int64_t count, std::int64_t cols, A* total) {
  __shared__ A runs[32][33];
  const std::int64_t column = std::int64_t{blockIdx.x} * 32 + threadIdx.x;
  A sum = 0;
  if (column < cols) {
#pragma unroll 4
    for (std::int64_t part = threadIdx.y; part < count; part += 32)
      sum += parts[part * cols + column];
  }
  runs[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= cols) return;
  sum = 0;
  for (int run = 0; run < 32; ++run) sum += runs[run][threadIdx.x];
  total[column] += sum;
}

template <class A>
void add_parts(cudaStream_t stream, const A* parts, std::int64_t count, View<A, 1> total) {
  const auto blocks = static_cast<unsigned>(cuda::divide_up(total.shape[0], 32));
  add_parts_kernel<A>
      <<<blocks, dim3(32, 32), 0, stream>>>(parts, count, total.shape[0], total.data);
}

}  // namespace turbogr::ops
