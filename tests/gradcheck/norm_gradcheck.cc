#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/gradcheck.h"
#include "tests/support/norm_case.h"

namespace turbogr::ops {
namespace {

using test::gradient_gap;
using test::NormCase;
using test::NormInputs;
using test::NormResults;

enum class Middle { kNone, kNorm, kInput };  // of three parts side by side

class NormGradient
    : public ::testing::TestWithParam<std::tuple<NormKind, bool, bool, Middle, bool>> {};

TEST_P(NormGradient, MatchesCentralDifferences) {
  const auto [kind, affine, gated, middle, silu_gate] = GetParam();
  const bool concat = middle != Middle::kNone;
  if ((concat || silu_gate) && !gated) GTEST_SKIP() << "these are the gate's";
  const NormCase c = {.rows = 4,
                      .cols = 6,
                      .kind = kind,
                      .affine = affine,
                      .gated = gated,
                      .concat = concat,
                      .silu_gate = silu_gate,
                      .dropout = {.rate = gated ? 0.4 : 0.0, .seed = 3, .site = 2},
                      .concat_input = middle == Middle::kInput};
  NormInputs<double> in(c);
  Context ctx({.threads = 2});
  const auto loss = [&] { return test::dot(test::run_norm<double>(ctx, c, in).y, in.dy); };
  NormResults out = test::run_norm<double>(ctx, c, in);
  EXPECT_LT(gradient_gap(in.x, out.dx, loss), 1e-8);
  if (gated) {
    EXPECT_LT(gradient_gap(in.gate, out.dgate, loss), 1e-8);
  }
  if (!affine) return;
  for (std::int64_t i = 0; i < c.cols; ++i) {
    out.dweight.view<double, 1>()(i) -= test::kNormStart;
    out.dbias.view<double, 1>()(i) -= test::kNormStart;
  }
  EXPECT_LT(gradient_gap(in.weight, out.dweight, loss), 1e-8);
  EXPECT_LT(gradient_gap(in.bias, out.dbias, loss), 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Forms, NormGradient,
                         ::testing::Combine(::testing::Values(NormKind::kLayer, NormKind::kRms),
                                            ::testing::Bool(), ::testing::Bool(),
                                            ::testing::Values(Middle::kNone, Middle::kNorm,
                                                              Middle::kInput),
                                            ::testing::Bool()));

}  // namespace
}  // namespace turbogr::ops
