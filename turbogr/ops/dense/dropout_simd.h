// The vectorised inner loops of dropout_cpu.cc, one table per instruction set.
#pragma once

#include <cstdint>

#include "turbogr/core/dtype.h"
#include "turbogr/core/simd_level.h"

namespace turbogr {

struct DropoutRowArgs {
  std::uint64_t seed, row_key, site;
  std::uint32_t threshold;
  float scale;
  std::int64_t cols;
};

struct DropoutTable {
  void (*row_f32)(const DropoutRowArgs&, const float* x, float* y);
  void (*row_bf16)(const DropoutRowArgs&, const bf16* x, bf16* y);
};

TGR_SIMD_TABLES(DropoutTable, dropout_table)

}  // namespace turbogr
