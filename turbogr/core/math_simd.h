// The functions of simd.h over arrays, one table per instruction set: what tests measure them by.
#pragma once

#include <cstdint>

#include "turbogr/core/dtype.h"
#include "turbogr/core/simd_level.h"

namespace turbogr {

struct MathTable {
  using Function = void (*)(std::int64_t count, const float* x, float* y);
  Function exp, sigmoid, silu, silu_slope;
  void (*to_bf16)(std::int64_t count, const float* x, bf16* y);
};

TGR_SIMD_TABLES(MathTable, math_table)

}  // namespace turbogr
