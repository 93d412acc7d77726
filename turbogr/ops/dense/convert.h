// Whole vectors: another format, one value, a sum.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// to(i) = from(i) rounded to the nearest To. Between any two of f64, f32 and bf16.
template <class To, class From>
void convert_values(const Context& ctx, View<const From, 1> from, View<To, 1> to);

// Every element becomes `value`. T: double, float, bf16, int64 or int32.
template <class T>
void fill(const Context& ctx, T value, View<T, 1> to);

// *sum = the sum of all values in f64, in an order that depends on their number alone. `sum` is
// memory of the context's device. T: double, float or bf16.
template <class T>
void sum_values(const Context& ctx, View<const T, 1> values, double* sum);
std::size_t sum_values_workspace_bytes(const Context& ctx, std::int64_t count);

// inverse(r) = 1 / max(|x(r)|, eps) of each row: what retrieval scores are scaled with.
//   x [N, D]    inverse [N]
template <class T>
void inverse_norms(const Context& ctx, Rows<const T> x, double eps, View<Accum<T>, 1> inverse);

}  // namespace turbogr::ops
