// The whole ranking model in double: every parameter and all rows against central differences, for
// each variant, dropout on.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/gradcheck.h"
#include "tests/support/ranking_case.h"

namespace turbogr::model {
namespace {

struct Case {
  std::string name;
  RankingOptions options;
  double norm_length = 0;
  bool recompute = false;
  bool one_target = false;  // a sequence, and known to be
};

class RankingGradient : public ::testing::TestWithParam<Case> {};

TEST_P(RankingGradient, MatchesCentralDifferences) {
  const RankingOptions& options = GetParam().options;
  const Context ctx({.threads = 1});
  test::EventCase c = {.prefix = options.prefix, .history = {4, 0, 1}, .targets = {3, 1, 0}};
  if (GetParam().one_target) c = {.prefix = c.prefix, .history = {4, 0}, .targets = {1, 1}};
  test::RankingBatch<double> batch(c, options);
  batch.step.norm_length = GetParam().norm_length;
  batch.step.most_targets = GetParam().one_target ? 1 : 0;
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
  std::vector<Case> all;
  for (const ModelKind kind : {ModelKind::kHstu, ModelKind::kFuxi}) {
    const std::string name = kind == ModelKind::kHstu ? "hstu_" : "fuxi_";
    const RankingOptions small = test::small_ranking(kind);
    RankingOptions full = small, only_ids = small, no_prefix = small, one_layer = small;
    full.prefix = 3;
    full.full_prefix = true;
    only_ids.item_features = 1;
    no_prefix.prefix = 0;
    one_layer.layers = 1;
    for (const Case& each :
         {Case{"causal_prefix", small}, Case{"full_prefix", full}, Case{"only_ids", only_ids},
          Case{"no_prefix", no_prefix}, Case{"one_layer", one_layer},
          Case{"length_of_the_step", small, 3.5}, Case{"recompute", small, 0, true},
          Case{"one_target", small, 0, false, true}}) {
      all.push_back(each);
      all.back().name = name + each.name;
    }
  }
  RankingOptions log_times = test::small_ranking(), layer_post = log_times, l2_post = log_times;
  log_times.buckets = ops::TimeBuckets::kLog;
  layer_post.post = PostKind::kLayer;
  l2_post.post = PostKind::kL2;
  RankingOptions norm_heads = log_times;
  norm_heads.norm_heads = true;
  for (const Case& each :
       {Case{"log_times", log_times}, Case{"layer_post", layer_post}, Case{"l2_post", l2_post},
        Case{"l2_post_one_target", l2_post, 0, false, true}, Case{"norm_heads", norm_heads},
        Case{"norm_heads_recompute", norm_heads, 0, true},
        Case{"norm_heads_one_target", norm_heads, 0, false, true}}) {
    all.push_back(each);
  }
  RankingOptions maps = test::small_ranking(ModelKind::kFuxi);
  for (const auto& [name, kind] :
       {std::pair{"no", BiasKind::kNone}, std::pair{"position", BiasKind::kPosition},
        std::pair{"time", BiasKind::kTime}}) {
    maps.maps = kind;
    all.push_back({std::string("fuxi_with_") + name + "_map", maps});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Variants, RankingGradient, ::testing::ValuesIn(cases()),
                         [](const auto& made) { return made.param.name; });

}  // namespace
}  // namespace turbogr::model
