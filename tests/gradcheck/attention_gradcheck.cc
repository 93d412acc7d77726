#include <gtest/gtest.h>

#include <vector>

#include "tests/support/attention_case.h"
#include "tests/support/gradcheck.h"

namespace turbogr::test {
namespace {

// Every gradient the operator gives, against central differences of sum(out * dout).
void expect_true_gradients(const AttentionCase& shape) {
  AttentionInputs<double> in = attention_inputs<double>(shape);
  const AttentionResults results = run_attention_op(in);
  const auto loss = [&] { return dot(run_attention_op(in).out, in.dout); };

  Tensor dprojection(DType::kF64, in.projection.shape());  // zero where nobody reads
  const auto put = [&](const Tensor& slice, std::int64_t column) {
    for (std::int64_t r = 0; r < slice.shape()[0]; ++r) {
      for (std::int64_t c = 0; c < slice.shape()[1]; ++c) {
        dprojection.view<double, 2>()(r, column + c) = element(slice, r * slice.shape()[1] + c);
      }
    }
  };
  put(results.dq, in.q_column());
  put(results.dk, in.k_column());
  put(results.dv, in.v_column());
  EXPECT_LT(gradient_gap(in.projection, dprojection, loss), 1e-8);

  const auto without_start = [](const Tensor& gradient) {
    Tensor change = converted<double, double>(gradient);
    for (std::int64_t i = 0; i < change.size(); ++i) change.view<double, 1>()(i) -= 0.25;
    return change;
  };
  EXPECT_LT(gradient_gap(in.position, without_start(results.dposition), loss), 1e-8);
  EXPECT_LT(gradient_gap(in.time, without_start(results.dtime), loss), 1e-8);
}

class AttentionGradient : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Of, AttentionGradient, ::testing::Values(false, true),
                         [](const auto& each) { return each.param ? "Fuxi" : "Hstu"; });

TEST_P(AttentionGradient, MatchesCentralDifferences) {
  expect_true_gradients(
      {.fuxi = GetParam(), .lengths = {4, 0, 3, 1}, .heads = 2, .dq = 3, .dv = 2, .alpha = 0.7});
}

TEST_P(AttentionGradient, MatchesCentralDifferencesUnderEveryMask) {
  expect_true_gradients({.fuxi = GetParam(), .lengths = {6}, .dq = 2, .dv = 3, .window = 2});
  expect_true_gradients({.fuxi = GetParam(), .lengths = {6}, .dq = 2, .dv = 3, .prefix = {2}});
  expect_true_gradients({.fuxi = GetParam(), .lengths = {6}, .dq = 2, .dv = 3, .targets = {2}});
  expect_true_gradients({.fuxi = GetParam(),
                         .lengths = {7, 3},
                         .dq = 2,
                         .dv = 3,
                         .window = 1,
                         .prefix = {2, 1},
                         .targets = {2, 1}});
  expect_true_gradients({.fuxi = GetParam(),
                         .lengths = {7, 2},
                         .dq = 2,
                         .dv = 3,
                         .prefix = {2, 0},
                         .targets = {3, 2},
                         .together = true,
                         .max_length = 5});  // places, fewer than tokens
}

TEST_P(AttentionGradient, MatchesCentralDifferencesWithoutTables) {
  expect_true_gradients({.fuxi = GetParam(), .lengths = {5}, .position = false, .time = false});
  expect_true_gradients({.fuxi = GetParam(), .lengths = {5}, .position = false});
  expect_true_gradients({.fuxi = GetParam(), .lengths = {5}, .time = false});
}

}  // namespace
}  // namespace turbogr::test
