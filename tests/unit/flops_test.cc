#include "turbogr/model/flops.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/messages.h"
#include "turbogr/model/ranking_flops.h"
#include "turbogr/ops/attention/attention_types.h"

namespace turbogr::model {
namespace {

ModelOptions published(ModelKind kind, std::int64_t max_length) {
  return {.kind = kind,
          .layers = 16,
          .width = 1024,
          .heads = 8,
          .dq = 128,
          .dv = 128,
          .feed_forward = 1024,
          .max_length = max_length};
}

// TFLOP a step and device as published for four models, at the tokens a device that reproduce them.
TEST(Flops, PaperConventionReproducesThePublishedTable) {
  struct Row {
    ModelKind kind;
    std::int64_t max_length, tokens;
    double tflop;
  };
  for (const Row& row :
       {Row{ModelKind::kHstu, 2048, 4780, 4.33}, Row{ModelKind::kHstu, 4096, 5464, 7.15},
        Row{ModelKind::kFuxi, 2048, 4096, 8.25}, Row{ModelKind::kFuxi, 4096, 4096, 11.54}}) {
    const std::vector<std::int64_t> lengths = {row.tokens};
    const Flops flops = step_flops(published(row.kind, row.max_length), lengths);
    EXPECT_NEAR(flops.paper * 1e-12, row.tflop, 0.006) << row.max_length;
  }
}

TEST(Flops, CausalCountsTheTriangleAndAddsOverSequences) {
  const ModelOptions tiny = {.layers = 1, .width = 2, .heads = 1, .dq = 3, .dv = 5};
  const std::vector<std::int64_t> one = {4};
  // Projections 2 * 4 * 2 * (2 * 5 + 2 * 3 + 5), attention (3 + 5) * 4 * 5.
  EXPECT_DOUBLE_EQ(forward_flops(tiny, one).causal, 2.0 * 4 * 2 * 21 + 8.0 * 20);
  const std::vector<std::int64_t> two = {4, 4};
  EXPECT_DOUBLE_EQ(step_flops(tiny, two).causal, 6 * forward_flops(tiny, one).causal);
}

// Of the published models: 512 wide, four heads of 128.
RankingOptions published_ranking(std::int64_t layers, std::int64_t prefix) {
  return {.prefix = prefix, .layers = layers, .width = 512, .heads = 4, .dq = 128, .dv = 128};
}

TEST(RankingFlops, AreThePublishedOnes) {
  const std::vector<std::int64_t> history = {2199}, targets = {1};
  const RankingFlops step = ranking_step_flops(published_ranking(3, 8), 4096, {history, targets});
  EXPECT_NEAR(step.nominal * 1e-9, 315.7, 0.05);
  EXPECT_NEAR(step.real / step.nominal, 0.4, 0.005);  // events of mean length 2,200
  const std::vector<std::int64_t> longer = {6700}, candidates = {2048};
  const RankingFlops request =
      ranking_forward_flops(published_ranking(5, 1), 8748, {longer, candidates});
  EXPECT_NEAR(request.causal * 1e-12, 0.53, 0.005);
  EXPECT_EQ(request.real, request.nominal);
}

// Pair by pair, as the mask says.
TEST(RankingFlops, CausalCountsWhatTheMaskAllows) {
  for (const bool full : {false, true}) {
    RankingOptions o = published_ranking(1, 3);
    o.full_prefix = full;
    const std::vector<std::int64_t> history = {5}, targets = {4};
    const ops::SequenceMask mask = {.length = 12, .prefix = full ? 3 : 0, .history_end = 8};
    double pairs = 0;
    for (std::int64_t i = 0; i < 12; ++i) {
      for (std::int64_t j = 0; j < 12; ++j) pairs += mask.sees(i, j) ? 1 : 0;
    }
    const double products = 2.0 * 12 * (512 * 2048 + 1536 * 512);
    EXPECT_DOUBLE_EQ(ranking_forward_flops(o, 12, {history, targets}).causal,
                     products + 2048 * pairs);
    EXPECT_DOUBLE_EQ(ranking_step_flops(o, 12, {history, targets}).causal,
                     3 * (products + 2048 * pairs));
    o.kind = ModelKind::kFuxi;
    o.feed_forward = 100;
    // U is three times as wide, there are three maps over the values, and the feed-forward.
    const double fuxi = 2.0 * 12 * 512 * (5 * 512 + 512 + 3 * 512 + 3 * 100);
    EXPECT_DOUBLE_EQ(ranking_forward_flops(o, 12, {history, targets}).causal,
                     fuxi + 2 * (512 + 3 * 512) * pairs);
  }
}

TEST(ModelOptions, SaysWhatIsWrong) {
  const auto message = [](ModelOptions options) {
    return test::message_of([&] { check_model_options(options); });
  };
  EXPECT_EQ(message({}), "");
  EXPECT_NE(message({.dq = 257}).find("both must be 1 to 256: set model.dq and model.dv"),
            std::string::npos);
  EXPECT_NE(message({.layers = 0}).find("0 layers"), std::string::npos);
  EXPECT_NE(message({.dropout = 1.0}).find("below 1"), std::string::npos);
  EXPECT_NE(message({.norm_length = 0}).find("above 0"), std::string::npos);
  EXPECT_NE(message({.concat_input = true}).find("set concat too"), std::string::npos);
  EXPECT_NE(message({.kind = ModelKind::kFuxi, .concat = true}).find("leave it out"),
            std::string::npos);
  EXPECT_NE(test::message_of([] { model_kind_from_name("sasrec"); }).find("hstu or fuxi"),
            std::string::npos);
  EXPECT_NE(
      test::message_of([] { bias_kind_from_name("all"); }).find("none, position, time or both"),
      std::string::npos);
}

}  // namespace
}  // namespace turbogr::model
