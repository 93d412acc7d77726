// Sums over heads of the gradients of scores that come out the same in whatever order heads add to
// them: integers of 16 bits, two a word, counted in parts of the largest gradient of a tile of
// queries, which the kernel before has found. Each head adds its number plus a constant, so that
// none is below zero and none spills into its neighbour; every head adds to every unit once.
#pragma once

#include "turbogr/ops/attention/hopper/attention_pairs.cuh"

namespace turbogr::cuda {

struct HeadSumScale {
  int zero;    // what a head adds for a gradient of 0
  float unit;  // the gradient of one count

  // `largest`: bits of a float. It may be a little less than the largest there is: it was rounded.
  __device__ HeadSumScale(int heads, unsigned largest) : zero(0x7fff / heads) {
    const float most = __uint_as_float(largest);
    unit = 1.01f * (most < 1e-30f ? 1e-30f : most) / static_cast<float>(zero - 1);
  }
};

// Two gradients to two counts.
struct HeadSumEncoder {
  float scale;
  float shift;

  __device__ explicit HeadSumEncoder(const HeadSumScale& s)
      : scale(1.f / s.unit), shift(0x1p23f + static_cast<float>(s.zero)) {}
  // From 2^23 on a float's last bits are an integer.
  __device__ __forceinline__ std::uint32_t operator()(float low, float high) const {
    return __byte_perm(__float_as_uint(fmaf(low, scale, shift)),
                       __float_as_uint(fmaf(high, scale, shift)), 0x5410);
  }
};

// Sums of all heads' counts to two bf16.
struct HeadSumDecoder {
  float shift;
  float unit;

  __device__ HeadSumDecoder(const HeadSumScale& s, int heads)
      : shift(0x1p23f + static_cast<float>(s.zero * heads)), unit(s.unit) {}
  __device__ __forceinline__ std::uint32_t operator()(std::uint32_t counts) const {
    const float low = __uint_as_float(__byte_perm(counts, 0x4b000000u, 0x7610));
    const float high = __uint_as_float(__byte_perm(counts, 0x4b000000u, 0x7632));
    return pack_bf16((low - shift) * unit, (high - shift) * unit);
  }
};

// The largest of packed bf16 without their signs; not a number is larger than all.
__device__ __forceinline__ std::uint32_t larger_pair(std::uint32_t largest, std::uint32_t two) {
  return __vmaxu2(largest, two & 0x7fff7fffu);
}
// All lanes of a warp have such a pair; one adds it to memory.
__device__ __forceinline__ void keep_largest(unsigned* to, std::uint32_t largest) {
  const unsigned bits = __reduce_max_sync(~0u, max(largest << 16, largest & 0xffff0000u));
  if (threadIdx.x % 32 == 0 && bits != 0) atomicMax(to, bits);
}

}  // namespace turbogr::cuda
