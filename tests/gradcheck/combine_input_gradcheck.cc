#include <gtest/gtest.h>

#include "tests/support/combine_input_case.h"
#include "tests/support/gradcheck.h"

namespace turbogr::ops {
namespace {

TEST(CombineInputGradient, MatchesCentralDifferences) {
  const test::CombineCase c = {{3, 0, 2}, 5, 4, true, {.rate = 0.3, .seed = 5}};
  test::CombineInputs<double> in(c);
  const Context ctx({.threads = 2});
  const auto loss = [&] { return test::dot(test::run_combine<double>(ctx, c, in).x, in.dx); };
  test::CombineResults out = test::run_combine<double>(ctx, c, in);
  for (std::int64_t i = 0; i < out.dp.size(); ++i) {
    out.dp.view<double, 2>().data[i] -= test::kCombineStart;
  }
  EXPECT_LT(test::gradient_gap(in.e, out.de, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(in.p, out.dp, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(in.extra, out.dextra, loss), 1e-8);
}

}  // namespace
}  // namespace turbogr::ops
