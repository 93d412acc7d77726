// The vectorised loops around the products of linear_cpu.cc, one table per instruction set.
#pragma once

#include <cstdint>

#include "turbogr/core/dtype.h"
#include "turbogr/core/simd_level.h"

namespace turbogr {

// Around a product of matrices kept in T.
template <class T>
struct LinearLoops {
  struct Matrix {
    T* data;  // null: absent
    std::int64_t stride;
  };
  struct ConstMatrix {
    const T* data;
    std::int64_t stride;
  };
  // z = tile + bias, y = act(z) + residual; the tile is dense f32.
  void (*epilogue)(std::int64_t rows, std::int64_t cols, const float* tile, const float* bias,
                   bool silu, ConstMatrix residual, Matrix y, Matrix z);
  // dz = dy * silu'(z), or dy where z is absent, and its columns added to db (null: not wanted). dz
  // is dense, in T or f32; null: only db is wanted.
  void (*gradient)(std::int64_t rows, std::int64_t cols, ConstMatrix dy, ConstMatrix z, T* dz,
                   float* db);
  void (*gradient_f32)(std::int64_t rows, std::int64_t cols, ConstMatrix dy, ConstMatrix z,
                       float* dz, float* db);
  // A dense copy, in T or f32.
  void (*gather)(std::int64_t rows, std::int64_t cols, ConstMatrix x, T* out);
  void (*gather_f32)(std::int64_t rows, std::int64_t cols, ConstMatrix x, float* out);
};

struct LinearTable {
  LinearLoops<float> f32;
  LinearLoops<bf16> bf16s;

  template <class T>
  const LinearLoops<T>& of() const {
    if constexpr (std::is_same_v<T, bf16>) {
      return bf16s;
    } else {
      return f32;
    }
  }
};

TGR_SIMD_TABLES(LinearTable, linear_table)

}  // namespace turbogr
