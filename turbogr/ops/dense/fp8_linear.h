// A linear layer whose product is of quantised matrices (fp8.h), summed in f32.
//
//   quantise<T>(ctx, x, x8);  quantise<T>(ctx, w, weight.values);
//   fp8_linear<T>(ctx, x8, weight, {.bias = b}, y);                   // y = x W + b
//   quantise<T>(ctx, dy, dy8);
//   fp8_linear_backward<T>(ctx, x8, weight, dy8, {.dx = dx, .dw = dw});
#pragma once

#include "turbogr/ops/dense/fp8.h"
#include "turbogr/ops/dense/linear.h"

namespace turbogr::ops {

// W [K, N], quantised; both widths multiples of 16 on a GPU, which wants both layouts.
template <class T>
struct Fp8Weight {
  Fp8Rows<T> values;
  const PackedWeight<T>* packed = nullptr;  // CPU: of the same numbers
};

// No activation. A GPU reads x by rows.
template <class T>
void fp8_linear(const Context& ctx, const Fp8Rows<T>& x, const Fp8Weight<T>& weight,
                const LinearOptions<T>& options, Rows<T> y);

// dx = dz W^T, dw += x^T dz; outputs left empty are not computed. db is not of products: it takes
// gradients as they were (linear_backward). A GPU reads x by columns and dz in both layouts.
template <class T>
void fp8_linear_backward(const Context& ctx, const Fp8Rows<T>& x, const Fp8Weight<T>& weight,
                         const Fp8Rows<T>& dz, const LinearGradients<T>& gradients);

// The workspace is that of linear and linear_backward.

}  // namespace turbogr::ops
