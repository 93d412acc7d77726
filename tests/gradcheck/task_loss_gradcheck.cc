#include <gtest/gtest.h>

#include <vector>

#include "tests/support/data.h"
#include "tests/support/gradcheck.h"
#include "turbogr/ops/loss/task_loss.h"

namespace turbogr::ops {
namespace {

TEST(TaskLossGradient, MatchesCentralDifferences) {
  const Context ctx({.threads = 2});
  Tensor logits = test::random_tensor<double>({5, 3}, 1), dlogits(DType::kF64, {5, 3});
  const Tensor weights = test::random_tensor<float>({5, 3}, 2);
  Tensor labels = test::random_tensor<float>({5, 3}, 3);
  // The first two tasks have labels of 0 and 1, the last any.
  for (std::int64_t i = 0; i < 5; ++i) {
    for (std::int64_t k = 0; k < 2; ++k) {
      float& label = labels.view<float, 2>()(i, k);
      label = label > 0 ? 1.0f : 0.0f;
    }
  }
  const std::vector<double> sums = {0.5, 4.0, 7.5};
  const std::vector<std::uint8_t> regression = {0, 0, 1};
  std::vector<double> losses(3);
  const auto loss = [&] {
    task_loss<double>(
        ctx, logits.view<double, 2>(), labels.view<float, 2>(), weights.view<float, 2>(),
        {.scale = 20, .weight_sums = {sums.data(), {3}}, .regression = {regression.data(), {3}}},
        test::view_of(losses), dlogits.view<double, 2>());
    return losses[0] + losses[1] + losses[2];
  };
  loss();
  Tensor gradient = test::converted<double, double>(dlogits);
  EXPECT_LT(test::gradient_gap(logits, gradient, loss), 1e-8);
}

}  // namespace
}  // namespace turbogr::ops
