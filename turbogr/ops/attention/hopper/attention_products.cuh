// The matrix products of the attention kernels and what stands between them, on tiles in the
// registers of a warpgroup (wgmma.cuh says which thread holds what). A product is issued and
// committed here; the caller fences before and waits behind it.
#pragma once

#include "turbogr/cuda/hopper.cuh"
#include "turbogr/cuda/wgmma.cuh"

namespace turbogr::cuda {

// scores[64, N] = A B^T, the sum over the D columns of two tiles of kRowsA and kRowsB rows. `b_at`:
// bytes to the tile of B, of several.
template <int D, int kRowsA, int kRowsB, int R>
__device__ __forceinline__ void multiply_columns(float (&scores)[R], const Operand<D>& a,
                                                 const Operand<D>& b, int b_at) {
  TGR_UNROLL
  for (int step = 0; step < D / 16; ++step) {
    Wgmma<2 * R>::template ss<0, 0>(scores, a.at(column_step<D, kRowsA>(step)),
                                    b.at(b_at + column_step<D, kRowsB>(step)), step != 0);
  }
  wgmma_commit();
}

// sums[64, D] (+)= A B, A packed in registers, the sum over the rows of B's tile.
template <int D, int R>
__device__ __forceinline__ void multiply_rows(float (&sums)[D / 2], const std::uint32_t (&a)[R],
                                              const Operand<D>& b, int b_at, bool accumulate) {
  TGR_UNROLL
  for (int step = 0; step < R / 4; ++step) {
    Wgmma<D>::template rs<1>(sums, a + 4 * step, b.at(b_at + row_step<D>(step)),
                             accumulate || step != 0);
  }
  wgmma_commit();
}

template <int R>
__device__ __forceinline__ void pack_pairs(const float (&values)[R],
                                           std::uint32_t (&packed)[R / 2]) {
  TGR_UNROLL
  for (int i = 0; i < R / 2; ++i) packed[i] = pack_bf16(values[2 * i], values[2 * i + 1]);
}

// Gradients of scores, in place and packed, from those of weights and SiLU's derivative.
template <int R>
__device__ __forceinline__ void differentiate(float (&dweights)[R], const float (&derivatives)[R],
                                              std::uint32_t (&grads)[R / 2]) {
  TGR_UNROLL
  for (int i = 0; i < R; ++i) dweights[i] *= derivatives[i];
  pack_pairs(dweights, grads);
}

}  // namespace turbogr::cuda
