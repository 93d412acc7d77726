// The vectorised rows of combine_input_cpu.cc, one table per instruction set.
#pragma once

#include <cstdint>
#include <type_traits>

#include "turbogr/core/dtype.h"
#include "turbogr/core/simd_level.h"
#include "turbogr/ops/dense/dropout_simd.h"

namespace turbogr {

// Pointers that are null are absent.
template <class T>
struct CombineInputLoops {
  void (*forward)(const DropoutRowArgs&, float scale, const T* e, const T* p, const T* extra, T* x);
  void (*backward)(const DropoutRowArgs&, float scale, const T* dx, T* de, float* dp, T* dextra);
};

struct CombineInputTable {
  CombineInputLoops<float> f32;
  CombineInputLoops<bf16> bf16s;

  template <class T>
  const CombineInputLoops<T>& of() const {
    if constexpr (std::is_same_v<T, bf16>) {
      return bf16s;
    } else {
      return f32;
    }
  }
};

TGR_SIMD_TABLES(CombineInputTable, combine_input_table)

}  // namespace turbogr
