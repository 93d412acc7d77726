// The whole ranking model in double: every parameter and all rows against central differences, for
// each variant, dropout on.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/gradcheck.h"
#include "tests/support/ranking_case.h"

namespace turbogr::model {
namespace {

struct Case {
  std::string name;
  RankingOptions options;
  double norm_length = 0;
  bool recompute = false;
};

class RankingGradient : public ::testing::TestWithParam<Case> {};

TEST_P(RankingGradient, MatchesCentralDifferences) {
  const RankingOptions& options = GetParam().options;
  const Context ctx({.threads = 1});
  const test::EventCase c = {.prefix = options.prefix, .history = {4, 0, 1}, .targets = {2, 1, 0}};
  test::RankingBatch<double> batch(c, options);
  batch.step.norm_length = GetParam().norm_length;
  RankingMemory memory = batch.memory();
  memory.layers.recompute = GetParam().recompute;
  RankingModel<double> model(ctx, options, memory);
  model.initialise(ctx, 5);
  const auto loss = [&] {
    model.refresh(ctx);
    const Rows<const double> logits = model.forward(ctx, batch.step, batch.rows());
    double sum = 0;
    for (std::int64_t r = 0; r < logits.rows; ++r) {
      for (std::int64_t k = 0; k < logits.cols; ++k) {
        sum += logits(r, k) * batch.dlogits.view<double, 2>()(r, k);
      }
    }
    return sum;
  };
  loss();
  model.parameters().zero_gradients(ctx);
  model.backward(ctx, batch.step, batch.rows(), batch.dlogits.view<double, 2>(), batch.gradients());
  EXPECT_LT(test::gradient_gap(batch.prefix, batch.dprefix, loss), 1e-7);
  EXPECT_LT(test::gradient_gap(batch.items, batch.ditems, loss), 1e-7);
  for (int i = 0; i < model.parameters().size(); ++i) {
    EXPECT_LT(test::gradient_gap(model.parameters().value(i), model.parameters().gradient(i), loss),
              1e-7)
        << model.parameters().spec(i).name;
  }
}

std::vector<Case> cases() {
  const RankingOptions small = test::small_ranking();
  RankingOptions full = small, only_ids = small, no_prefix = small;
  full.full_prefix = true;
  only_ids.item_features = 1;
  no_prefix.prefix = 0;
  return {{"causal_prefix", small},
          {"full_prefix", full},
          {"only_ids", only_ids},
          {"no_prefix", no_prefix},
          {"length_of_the_step", small, 3.5},
          {"recompute", small, 0, true}};
}

INSTANTIATE_TEST_SUITE_P(Variants, RankingGradient, ::testing::ValuesIn(cases()),
                         [](const auto& made) { return made.param.name; });

}  // namespace
}  // namespace turbogr::model
