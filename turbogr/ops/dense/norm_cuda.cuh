// Shared by the CUDA kernels of norm.h and gated_norm.h.
#pragma once

#include "turbogr/ops/dense/dropout_mask_cuda.cuh"
#include "turbogr/ops/dense/norm_kernels.h"

namespace turbogr::ops::kernels {

template <class T>
struct NormArgs {
  using A = Accum<T>;
  Rows<const T> x, gate, dy, residual;
  const A* weight;
  const A* bias;
  bool layer;
  bool silu_gate;
  A eps;
  DropoutDraw draw;
  Rows<T> y, dx, dgate;
  A* mean;
  A* rstd;
  A* dweight_parts;  // [blocks, D] each, or null
  A* dbias_parts;
  A* residual_parts;
};

template <class A>
__device__ inline void multiply(cuda::Eight<A>& x, const cuda::Eight<A>& y) {
#pragma unroll
  for (int i = 0; i < cuda::kColumns; ++i) x[i] *= y[i];
}

// For rows of bf16 without weights where cuda::grouped(width) and all are vectorable.
// With y8 that is written in place of y, in both layouts.
void norm_grouped(cudaStream_t stream, NormOutput output, const NormArgs<bf16>& args,
                  const Fp8Rows<bf16>& y8);
// Returns the number of residual_parts that it left, none where that is null.
std::int64_t norm_backward_grouped(cudaStream_t stream, NormOutput output,
                                   const NormArgs<bf16>& args);

}  // namespace turbogr::ops::kernels
