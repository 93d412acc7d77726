// Vectorised loops over rows picked by index: dot products, weighted sums, conversions. Shared by
// the sparse operators; one table per instruction set.
#pragma once

#include <cstdint>

#include "turbogr/core/dtype.h"
#include "turbogr/core/simd_level.h"

namespace turbogr {

// Rows of T are `stride` elements apart; `index` picks them.
template <class T>
struct RowKernels {
  // out[j] = sum over columns of query * rows[index[j]]
  void (*dot)(const float* query, const T* rows, std::int64_t stride, const std::int32_t* index,
              std::int64_t count, std::int64_t width, float* out);
  // out += sum over j, ascending, of weights[j] * rows[index[j]]; null weights are ones
  void (*add)(const T* rows, std::int64_t stride, const std::int32_t* index, const float* weights,
              std::int64_t count, std::int64_t width, float* out);
  float (*sum_of_squares)(const T* x, std::int64_t width);
  float (*max_magnitude)(const T* x, std::int64_t width);  // of numbers: a NaN is passed over
  void (*widen)(const T* x, float scale, std::int64_t width, float* y);   // y = x * scale
  void (*narrow)(const float* x, float scale, std::int64_t width, T* y);  // y = x * scale
};

struct RowTable {
  RowKernels<float> f32;
  RowKernels<bf16> narrow16;
  RowKernels<f16> half16;
  float (*dot)(const float* x, const float* y, std::int64_t width);
  void (*axpy)(float a, const float* x, std::int64_t width, float* y);  // y += a * x
  float (*max)(const float* x, std::int64_t count);                     // -infinity of none
  // x = e^(x - shift); returns the sum
  float (*exp_minus)(float* x, std::int64_t count, float shift);
};

TGR_SIMD_TABLES(RowTable, row_table)

template <class T>
const RowKernels<T>& row_kernels(SimdLevel level);
template <>
inline const RowKernels<float>& row_kernels<float>(SimdLevel level) {
  return row_table(level).f32;
}
template <>
inline const RowKernels<bf16>& row_kernels<bf16>(SimdLevel level) {
  return row_table(level).narrow16;
}

template <>
inline const RowKernels<f16>& row_kernels<f16>(SimdLevel level) {
  return row_table(level).half16;
}

}  // namespace turbogr
