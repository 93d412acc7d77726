#include <gtest/gtest.h>

#include "tests/support/data.h"
#include "tests/support/gradcheck.h"
#include "turbogr/ops/dense/l2_normalize.h"
#include "turbogr/ops/dense/silu.h"
#include "turbogr/ops/dense/swiglu.h"

namespace turbogr::ops {
namespace {

using test::gradient_gap;
using test::random_tensor;

class ElementwiseGradient : public ::testing::Test {
 protected:
  const Context ctx{{.threads = 2}};
  Tensor a = random_tensor<double>({3, 5}, 1), b = random_tensor<double>({3, 5}, 2);
  const Tensor dy = random_tensor<double>({3, 5}, 3);
  Tensor y{DType::kF64, {3, 5}}, da{DType::kF64, {3, 5}}, db{DType::kF64, {3, 5}};
  static View<double, 2> view(Tensor& t) { return t.view<double, 2>(); }
};

TEST_F(ElementwiseGradient, OfSwigluMatchesCentralDifferences) {
  const auto loss = [&] {
    swiglu<double>(ctx, view(a), view(b), view(y));
    return test::dot(y, dy);
  };
  swiglu_backward<double>(ctx, view(a), view(b), dy.view<double, 2>(), view(da), view(db));
  EXPECT_LT(gradient_gap(a, da, loss), 1e-8);
  EXPECT_LT(gradient_gap(b, db, loss), 1e-8);
}

TEST_F(ElementwiseGradient, OfSiluMatchesCentralDifferences) {
  const auto loss = [&] {
    silu<double>(ctx, view(a), view(y));
    return test::dot(y, dy);
  };
  silu_backward<double>(ctx, view(a), dy.view<double, 2>(), view(da));
  EXPECT_LT(gradient_gap(a, da, loss), 1e-8);
}

TEST_F(ElementwiseGradient, OfL2NormalizeMatchesCentralDifferences) {
  // Row 2 is shorter than eps.
  for (std::int64_t c = 0; c < 5; ++c) view(a)(2, c) *= 1e-2;
  const L2NormalizeOptions options = {.eps = 0.5};
  Tensor inverse(DType::kF64, {3});
  const auto loss = [&] {
    l2_normalize<double>(ctx, view(a), options, view(y), inverse.view<double, 1>());
    return test::dot(y, dy);
  };
  loss();
  EXPECT_EQ((inverse.view<double, 1>()(2)), 2.0);
  l2_normalize_backward<double>(ctx, view(a), dy.view<double, 2>(), inverse.view<double, 1>(),
                                options, view(da));
  EXPECT_LT(gradient_gap(a, da, loss), 1e-8);
}

}  // namespace
}  // namespace turbogr::ops
