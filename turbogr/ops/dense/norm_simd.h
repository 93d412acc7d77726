// The vectorised rows of norm_cpu.cc, one table per instruction set.
#pragma once

#include <cstdint>
#include <type_traits>

#include "turbogr/core/dtype.h"
#include "turbogr/core/simd_level.h"

namespace turbogr {

// A row's norm and its dropout draw; pointers that are null are absent.
struct NormRow {
  std::int64_t cols;
  bool layer;  // subtracts the mean
  bool silu_gate;
  float eps;
  const float* weight;
  const float* bias;
  std::uint64_t seed, row_key, site;
  std::uint32_t threshold;  // 0: no dropout
  float scale;
  float* factors;  // scratch: the row's output width rounded up to 128; of swish, its sigmoids
  float mean, rstd;
  float* slope;    // scratch of the backward pass: cols
  float* dweight;  // added to
  float* dbias;
};

template <class T>
struct NormLoops {
  using Forward = void (*)(NormRow&, const T* x, const T* gate, T* y);  // sets mean and rstd
  // A residual that is not null is added to dx.
  using Backward = void (*)(const NormRow&, const T* x, const T* gate, const T* dy,
                            const T* residual, T* dx, T* dgate);
  Forward forward[5];  // by NormOutput
  Backward backward[5];
};

struct NormTable {
  NormLoops<float> f32;
  NormLoops<bf16> bf16s;

  template <class T>
  const NormLoops<T>& of() const {
    if constexpr (std::is_same_v<T, bf16>) {
      return bf16s;
    } else {
      return f32;
    }
  }
};

TGR_SIMD_TABLES(NormTable, norm_table)

}  // namespace turbogr
