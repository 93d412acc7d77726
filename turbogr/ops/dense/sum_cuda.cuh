// Sums of many values in f64: a block a piece, then the pieces in order.
#pragma once

#include "turbogr/cuda/columns.cuh"

namespace turbogr::ops {

inline constexpr unsigned kSumThreads = 256;

// The sum over the block of what each thread has, in thread 0.
__device__ inline double block_sum(double value) {
  __shared__ double warps[kSumThreads / 32];
  value = cuda::warp_sum(value);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  if (threadIdx.x == 0) {
    for (unsigned warp = 0; warp < kSumThreads / 32; ++warp) value += warps[warp];
  }
  return value;
}

// One block.
static __global__ void sum_parts_kernel(const double* parts, std::int64_t count, double* sum) {
  double own = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kSumThreads) own += parts[i];
  own = block_sum(own);
  if (threadIdx.x == 0) *sum = own;
}

}  // namespace turbogr::ops
