// For kernels whose result is wanted in eight bits: they store it so themselves, as quantise would
// have made it of the bf16 they would have stored, and finish_fp8 does the rest.
//
//   Fp8Store store = {y8};  store.start();  ... store(row, column, eight) ...  store.finish();
#pragma once

#include <cuda_fp8.h>

#include "turbogr/cuda/columns.cuh"
#include "turbogr/ops/dense/fp8_kernels.h"

namespace turbogr::ops {

__device__ inline uint2 to_fp8_bytes(const cuda::Eight<float>& x, Fp8Format format) {
  const auto interpretation = format == Fp8Format::kE4m3 ? __NV_E4M3 : __NV_E5M2;
  std::uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[i] = __nv_cvt_float2_to_fp8x2({x[2 * i], x[2 * i + 1]}, __NV_SATFINITE, interpretation);
  }
  return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
}

// Of a whole warp. Few find a larger one than there is.
__device__ inline void note_largest(Fp8Scale* scale, std::uint32_t largest) {
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % 32 == 0 && largest > *const_cast<volatile std::uint32_t*>(&scale->seen)) {
    atomicMax(&scale->seen, largest);
  }
}

// When all of a matrix is there. Not finite: that step changes nothing, and the scale stays as it
// was.
__device__ inline void turn_scale(Fp8Format format, Fp8Scale* scale) {
  const float seen = __uint_as_float(atomicExch(&scale->seen, 0u));
  scale->inverse = 1 / fp8_scale(format, scale->largest);
  if (isfinite(seen)) scale->largest = seen;
}

// Rows by eights of columns, to memory of T.
template <class T, bool kVector>
struct PlainStore {
  Rows<T> y;

  __device__ void start() {}
  __device__ void operator()(std::int64_t r, std::int64_t c, const cuda::Eight<Accum<T>>& x) {
    cuda::store8<kVector>(y.row(r) + c, y.cols - c, x);
  }
  __device__ void finish() {}
};

struct Fp8Store {
  Fp8Rows<bf16> out;
  float scale = 0;
  std::uint32_t largest = 0;

  __device__ void start() { scale = fp8_scale(out.format, out.scale->largest); }
  __device__ void operator()(std::int64_t r, std::int64_t c, cuda::Eight<float> x) {
#pragma unroll
    for (int i = 0; i < cuda::kColumns; ++i) {
      x[i] = __bfloat162float(__float2bfloat16_rn(x[i]));
      largest = max(largest, magnitude_bits(x[i]));
      x[i] *= scale;
    }
    *reinterpret_cast<uint2*>(out.by_row + r * out.cols + c) = to_fp8_bytes(x, out.format);
  }
  __device__ void finish() { note_largest(out.scale, largest); }  // all threads of a warp
};

// Behind a kernel with an Fp8Store: the other layout, and the scale of the next matrix.
void finish_fp8(cudaStream_t stream, const Fp8Rows<bf16>& x);

}  // namespace turbogr::ops
