// The vectorised rows of elementwise_cpu.cc, one table per instruction set.
#pragma once

#include <cstdint>
#include <type_traits>

#include "turbogr/core/dtype.h"
#include "turbogr/core/simd_level.h"

namespace turbogr {

template <class T>
struct ElementwiseLoops {
  void (*swiglu)(std::int64_t cols, const T* a, const T* b, T* y);
  void (*swiglu_backward)(std::int64_t cols, const T* a, const T* b, const T* dy, T* da, T* db);
  void (*silu)(std::int64_t cols, const T* x, T* y);
  void (*silu_backward)(std::int64_t cols, const T* x, const T* dy, T* dx);
  // Returns 1 / max(|x|, eps).
  float (*l2_normalize)(std::int64_t cols, float eps, const T* x, T* y);
  // scaled: the row was shorter than eps.
  void (*l2_normalize_backward)(std::int64_t cols, float inverse, bool scaled, const T* x,
                                const T* dy, T* dx);
};

struct ElementwiseTable {
  ElementwiseLoops<float> f32;
  ElementwiseLoops<bf16> bf16s;

  template <class T>
  const ElementwiseLoops<T>& of() const {
    if constexpr (std::is_same_v<T, bf16>) {
      return bf16s;
    } else {
      return f32;
    }
  }
};

TGR_SIMD_TABLES(ElementwiseTable, elementwise_table)

}  // namespace turbogr
