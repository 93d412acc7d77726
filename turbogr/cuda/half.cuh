// f16 in kernels: eight neighbouring values of a row, as columns.cuh has them of the other formats.
#pragma once

#include <cuda_fp16.h>

#include "turbogr/cuda/columns.cuh"

namespace turbogr::cuda {

__device__ inline float widened(f16 value) { return __half2float(__ushort_as_half(value.bits)); }
__device__ inline f16 narrowed(float value) {
  f16 out;
  out.bits = __half_as_ushort(__float2half_rn(value));
  return out;
}
template <class T>  // f16, or what convert knows
__device__ T narrowed(float value) {
  if constexpr (std::is_same_v<T, f16>) {
    return narrowed(value);
  } else {
    return convert<T>(value);
  }
}

__device__ inline Eight<float> widened(const uint4& raw) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  Eight<float> out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
    out[2 * i] = pair.x;
    out[2 * i + 1] = pair.y;
  }
  return out;
}

// As load8 and store8.
template <bool kVector>
__device__ Eight<float> load_half8(const f16* p, std::int64_t count) {
  if constexpr (kVector) {
    return widened(*reinterpret_cast<const uint4*>(p));
  } else {
    Eight<float> out;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) out[i] = i < count ? widened(p[i]) : 0.0f;
    return out;
  }
}
template <bool kVector>
__device__ void store_half8(f16* p, std::int64_t count, const Eight<float>& x) {
  if constexpr (kVector) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __half2 pair = __floats2half2_rn(x[2 * i], x[2 * i + 1]);
      words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
    }
    *reinterpret_cast<uint4*>(p) = {words[0], words[1], words[2], words[3]};
  } else {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (i < count) p[i] = narrowed(x[i]);
    }
  }
}

// Eight values of a row of T or of f16, in arithmetic A.
template <bool kVector, class A, class Row>
__device__ Eight<A> load_row8(const Row* p, std::int64_t count) {
  if constexpr (std::is_same_v<Row, f16>) {
    const Eight<float> x = load_half8<kVector>(p, count);
    if constexpr (std::is_same_v<A, float>) {
      return x;
    } else {
      Eight<A> out;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) out[i] = A(x[i]);
      return out;
    }
  } else {
    return load8<kVector>(p, count);
  }
}

}  // namespace turbogr::cuda
