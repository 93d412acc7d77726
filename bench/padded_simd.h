// The elementwise passes of the padded baseline, vectorised for every instruction set like the
// operators' own.
#pragma once

#include <cstdint>

#include "turbogr/core/dtype.h"
#include "turbogr/core/simd_level.h"

namespace turbogr {

// a = silu(scores + bias) * scale over a row; bias may be null.
// backward: gradient = gradient * silu'(scores + bias) * scale in place; adds it to sum unless
// null.
struct PaddedTable {
  void (*silu_f32)(const float* scores, const float* bias, float scale, std::int64_t count,
                   float* a);
  void (*silu_bf16)(const bf16* scores, const float* bias, float scale, std::int64_t count,
                    bf16* a);
  void (*silu_backward_f32)(const float* scores, const float* bias, float scale, std::int64_t count,
                            float* gradient, float* sum);
  void (*silu_backward_bf16)(const bf16* scores, const float* bias, float scale, std::int64_t count,
                             bf16* gradient, float* sum);
};

TGR_SIMD_TABLES(PaddedTable, padded_table)

}  // namespace turbogr
