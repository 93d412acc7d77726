#include <gtest/gtest.h>

#include "tests/support/gradcheck.h"
#include "tests/support/swish_norm_case.h"

namespace turbogr::ops {
namespace {

TEST(SwishNormGradient, MatchesCentralDifferences) {
  const test::NormCase c = {.rows = 4, .cols = 6, .kind = NormKind::kLayer, .affine = true};
  test::NormInputs<double> in(c);
  Context ctx({.threads = 2});
  const auto loss = [&] { return test::dot(test::run_swish_norm<double>(ctx, c, in).y, in.dy); };
  test::NormResults out = test::run_swish_norm<double>(ctx, c, in);
  for (std::int64_t i = 0; i < c.cols; ++i) {
    out.dweight.view<double, 1>()(i) -= test::kNormStart;
    out.dbias.view<double, 1>()(i) -= test::kNormStart;
  }
  EXPECT_LT(test::gradient_gap(in.x, out.dx, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(in.weight, out.dweight, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(in.bias, out.dbias, loss), 1e-8);
}

}  // namespace
}  // namespace turbogr::ops
