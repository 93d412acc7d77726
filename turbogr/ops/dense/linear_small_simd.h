// The products of linear_small_cpu.cc, one table per instruction set.
#pragma once

#include <cstdint>

#include "turbogr/core/simd_level.h"
#include "turbogr/ops/dense/linear_simd.h"

namespace turbogr {

// Columns of a packed weight come in this many, the last of them zero: whole vectors everywhere.
inline constexpr std::int64_t kSmallWeightPad = 16;

struct SmallProducts {
  using Matrix = LinearLoops<float>::Matrix;
  using ConstMatrix = LinearLoops<float>::ConstMatrix;

  // What becomes of x W: z = x W + bias, y = act(z) + residual. Pointers that are null are absent.
  struct Finish {
    const float* bias;
    bool silu;
    ConstMatrix residual;
    Matrix y, z;
  };
  // x [rows, inputs]; weight [inputs, outputs rounded up to kSmallWeightPad], dense.
  void (*forward)(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, ConstMatrix x,
                  const float* weight, const Finish& finish);
  // dw [inputs, outputs], dense: = x^T dz, or += where `add` is set.
  void (*gradient)(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, ConstMatrix x,
                   ConstMatrix dz, bool add, float* dw);
};

TGR_SIMD_TABLES(SmallProducts, small_products)

}  // namespace turbogr
