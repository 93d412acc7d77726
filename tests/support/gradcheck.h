// Central differences in double. For a scalar loss = sum(y * dy), each input's analytic gradient
// must match (loss(x + h) - loss(x - h)) / 2h.
//
//   EXPECT_LT(gradient_gap(x, dx, [&] { return loss(); }), 1e-8);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "turbogr/core/tensor.h"

namespace turbogr::test {

// sum(a * b) over two f64 tensors of one shape.
inline double dot(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  const double* x = reinterpret_cast<const double*>(a.data());
  const double* y = reinterpret_cast<const double*>(b.data());
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// Largest difference between `gradient` and central differences of `loss` over every element of
// `input` (f64), relative to the larger of 1 and the gradient's magnitude. `loss` recomputes from
// `input`.
template <class Loss>
double gradient_gap(Tensor& input, const Tensor& gradient, Loss&& loss, double step = 1e-5) {
  EXPECT_EQ(input.dtype(), DType::kF64);
  EXPECT_EQ(input.shape(), gradient.shape());
  double* x = reinterpret_cast<double*>(input.data());
  const double* g = reinterpret_cast<const double*>(gradient.data());
  double worst = 0;
  double largest = 1;
  for (std::int64_t i = 0; i < input.size(); ++i) {
    const double saved = x[i];
    x[i] = saved + step;
    const double above = loss();
    x[i] = saved - step;
    const double below = loss();
    x[i] = saved;
    const double difference = std::abs((above - below) / (2 * step) - g[i]);
    if (!(difference <= worst)) worst = difference;  // a NaN sticks
    largest = std::max(largest, std::abs(g[i]));
  }
  return worst / largest;
}

}  // namespace turbogr::test
