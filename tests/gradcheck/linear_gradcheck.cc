#include <gtest/gtest.h>

#include "tests/support/data.h"
#include "tests/support/gradcheck.h"
#include "turbogr/ops/dense/linear.h"

namespace turbogr::ops {
namespace {

using test::random_tensor;

class LinearGradient : public ::testing::TestWithParam<Activation> {};

TEST_P(LinearGradient, MatchesCentralDifferences) {
  const Context ctx({.threads = 2});
  const std::int64_t rows = 4, inputs = 5, outputs = 3;
  Tensor x = random_tensor<double>({rows, inputs}, 1),
         w = random_tensor<double>({inputs, outputs}, 2);
  Tensor bias = random_tensor<double>({outputs}, 3);
  Tensor residual = random_tensor<double>({rows, outputs}, 4);
  const Tensor dy = random_tensor<double>({rows, outputs}, 5);
  Tensor y(DType::kF64, {rows, outputs}), z(DType::kF64, {rows, outputs});
  PackedWeight<double> weight(ctx, inputs, outputs);
  const auto loss = [&] {
    weight.pack(ctx, w.view<double, 2>());
    linear<double>(ctx, x.view<double, 2>(), weight,
                   {.bias = bias.view<double, 1>(),
                    .activation = GetParam(),
                    .residual = residual.view<double, 2>()},
                   y.view<double, 2>(), z.view<double, 2>());
    return test::dot(y, dy);
  };
  loss();
  Tensor dx(DType::kF64, {rows, inputs}), dw(DType::kF64, {inputs, outputs}),
      db(DType::kF64, {outputs});
  linear_backward<double>(ctx, x.view<double, 2>(), weight, dy.view<double, 2>(),
                          {.activation = GetParam(), .z = z.view<double, 2>()},
                          {dx.view<double, 2>(), dw.view<double, 2>(), db.view<double, 1>()});
  EXPECT_LT(test::gradient_gap(x, dx, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(w, dw, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(bias, db, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(residual, dy, loss), 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Activations, LinearGradient,
                         ::testing::Values(Activation::kNone, Activation::kSilu));

}  // namespace
}  // namespace turbogr::ops
