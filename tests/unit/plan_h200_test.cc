// Predictions against steps that were measured on one H200. The figures are those of the pages
// named; lengths are made up with the number of sequences, tokens and longest length that the pages
// give (which with the causal FLOPs behind their MFU agree within 2 %).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "turbogr/core/context.h"
#include "turbogr/model/flops.h"
#include "turbogr/model/model.h"
#include "turbogr/plan/cluster.h"
#include "turbogr/plan/compute_cost.h"
#include "turbogr/run/config.h"

namespace turbogr::plan {
namespace {

// 65,536 tokens: 34 sequences of up to 2048, 19 of up to 4096.
std::vector<std::int64_t> measured_lengths(std::int64_t longest) {
  std::vector<std::int64_t> lengths(longest == 2048 ? 30 : 13, longest);
  lengths.insert(lengths.end(), longest == 2048 ? 4 : 6, longest / 2);
  return lengths;
}

struct Measured {
  std::string config;     // in configs/
  std::string overrides;  // key=value
  double ms;
  double mfu;  // causal, as the page has it; 0: it has none
  std::string page;
};

constexpr double kRows = 60'000;  // distinct rows of such a batch and its 8,192 negatives, about

double predicted_ms(const Measured& each, double& mfu) {
  std::vector<run::Override> overrides;
  if (!each.overrides.empty()) {
    std::string left = each.overrides;
    while (!left.empty()) {
      const std::string one = left.substr(0, left.find(' '));
      left = one.size() == left.size() ? "" : left.substr(one.size() + 1);
      overrides.push_back({one.substr(0, one.find('=')), one.substr(one.find('=') + 1)});
    }
  }
  const run::Config config =
      run::load_config(test::source_dir() + "/configs/" + each.config, overrides);
  const SimulationSetup setup = setup_of(config, {.nodes = 1, .gpus = 1});
  const std::vector<std::int64_t> lengths = measured_lengths(config.data.max_length);
  const double seconds = ComputeCost(setup.gpu, setup.work)
                             .of({.lengths = lengths, .rows = static_cast<std::int64_t>(kRows)})
                             .total();
  mfu = model::step_flops(setup.work.model, lengths).causal / seconds / 989e12;
  return 1e3 * seconds;
}

TEST(PlanH200, PredictsMeasuredStepsWithinFivePercent) {
  const std::string step = "step_h200_2026-11-15.md", engine = "engine_h200_2026-11-16.md";
  const std::vector<Measured> all = {
      {"kuairand27k-hstu-large.toml", "", 115.1, .404, step},
      {"kuairand27k-hstu-long.toml", "", 142.7, .404, step},
      {"kuairand27k-fuxi-large.toml", "", 222.0, .479, step},
      {"kuairand27k-fuxi-long.toml", "", 263.3, .489, step},
      {"kuairand27k-hstu-large.toml", "model.bias=none", 106.3, .437, step},
      {"kuairand27k-hstu-large.toml", "model.bias=none negatives.set=token negatives.count=128",
       123.2, .377, step},
      // Of another page than the descriptions were made from.
      {"kuairand27k-hstu-large.toml", "", 111.55, 0, engine},
      {"kuairand27k-hstu-large.toml", "", 116.48, 0, engine},
      {"kuairand27k-hstu-large.toml", "", 65536.0 / 576.0, .409, engine},  // from the loader
      {"kuairand27k-fuxi-long.toml", "", 65536.0 / 243.0, .486, engine},
      {"kuairand27k-hstu-large.toml", "", 65536.0 / 576.162, 0, "step_small_h200_2026-11-19.md"},
  };
  for (const Measured& each : all) {
    double mfu = 0;
    const double ms = predicted_ms(each, mfu);
    EXPECT_NEAR(ms / each.ms, 1, 0.05)
        << each.config << ' ' << each.overrides << ": predicted " << ms << " ms, measured "
        << each.ms << " (" << each.page << ")";
    if (each.mfu > 0) {
      EXPECT_NEAR(mfu / each.mfu, 1, 0.05) << each.config << ' ' << each.overrides;
    }
  }
}

// 16,384 tokens a step: 519,995 tokens/s (engine_h200_2026-11-16.md, ranks that share the GPU).
TEST(PlanH200, PredictsASmallBatchWithinFivePercent) {
  const run::Config config =
      run::load_config(test::source_dir() + "/configs/kuairand27k-hstu-large.toml", {});
  const SimulationSetup setup = setup_of(config, {.nodes = 1, .gpus = 1});
  std::vector<std::int64_t> lengths(7, 2048);
  lengths.insert(lengths.end(), 2, 1024);
  const double seconds =
      ComputeCost(setup.gpu, setup.work).of({.lengths = lengths, .rows = 22'000}).total();
  EXPECT_NEAR(seconds / (16384.0 / 519'995), 1, 0.05);
}

TEST(PlanCluster, CountsTheWeightsOfTheModels) {
  for (const auto kind : {model::ModelKind::kHstu, model::ModelKind::kFuxi}) {
    for (const auto bias : {model::BiasKind::kNone, model::BiasKind::kBoth}) {
      model::ModelOptions options;
      options.kind = kind;
      options.bias = bias;
      options.heads = 2;
      options.dq = options.dv = 24;
      options.feed_forward = 40;
      options.max_length = 33;
      model::Model<float> real(Context({.threads = 1}), options, {.capacity = 8});
      std::int64_t weights = 0;
      for (int i = 0; i < real.parameters().size(); ++i)
        weights += real.parameters().value(i).size();
      EXPECT_EQ(dense_parameters(options), weights);
    }
  }
}

}  // namespace
}  // namespace turbogr::plan
