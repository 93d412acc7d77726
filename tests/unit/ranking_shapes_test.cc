// configs/dlrmv4.toml and dlrmv3.toml are the published models: weights, tables, features, recipe.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "bench/ranking_world.h"
#include "tests/support/paths.h"
#include "turbogr/core/context.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/model/ranking_model.h"
#include "turbogr/run/config.h"
#include "turbogr/run/ranking_setup.h"
#include "turbogr/train/ranking_trainer.h"

namespace turbogr {
namespace {

using run::Config;
using run::load_config;
using run::Override;

Config shape_config(const std::string& name, const std::vector<Override>& overrides = {}) {
  return load_config(test::source_dir() + "/configs/" + name + ".toml", overrides);
}

std::int64_t sum_of(const std::vector<std::int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

std::int64_t dense_weights(const model::RankingOptions& options) {
  const Context ctx({.threads = 1});
  const model::RankingModel<float> model(
      ctx, options, {.layers = {.capacity = 64, .sequences = 1}, .targets = 1});
  return model.parameters().count();
}

TEST(RankingShapes, Dlrmv4HasThePublishedWeightsAndRows) {
  const Config config = shape_config("dlrmv4", {{"embedding.cut", "1"}});
  const run::RankingSetup setup = run::ranking_shape(config);
  const model::RankingOptions model = run::ranking_options(config, setup, 1);
  EXPECT_EQ(dense_weights(model), 15'243'057);
  EXPECT_EQ(model.max_length, 4095);
  EXPECT_EQ(sum_of(setup.features.table_rows), 293'051'712);
  EXPECT_EQ(setup.tables.size(), 11u);
  EXPECT_EQ(setup.features.prefix.size(), 8u);
  EXPECT_EQ(setup.features.prefix.back().name, "user_x_artist_x_hour");
  EXPECT_EQ(setup.features.items[0].name, "item_id");
  EXPECT_EQ(config.optim.beta1, 0.95);
  EXPECT_EQ(config.optim.clip, 1.0);
}

// What a step of the config takes where all its samples are as long as they may be: the plan of a
// CPU, which has the same tensors and less beside them. Of the step that the benchmark measures
// (2,085,190 tokens in 4 parts) it says 78.3 GiB, and on an H200 81.6 were in use.
double planned_gib(const Config& config, std::int64_t tokens) {
  const run::RankingSetup setup = run::ranking_shape(config);
  const std::int64_t longest = run::ranking_options(config, setup, 1).max_length;
  const run::RankingBounds batch = {.samples = config.train.batch,
                                    .tokens = tokens,
                                    .targets = config.train.batch,
                                    .most_tokens = longest,
                                    .most_targets = 1};
  train::RankingTrainOptions options =
      run::ranking_train_options(config, setup, batch.part(config.train.accumulate));
  options.batch = {batch.samples, batch.tokens, batch.targets};
  options.plan_only = true;
  const PlanOnly planning;
  const Context ctx({.threads = 1});
  const auto alone = dist::make_self();
  const train::RankingTrainer<bf16> trainer(ctx, *alone, options);
  return static_cast<double>(trainer.planned_bytes(ctx).host) / (1 << 30);
}

TEST(RankingShapes, Dlrmv4FitsOneGpuAsItStands) {
  const Config config = shape_config("dlrmv4", {{"train.device", "cpu"}});
  EXPECT_DOUBLE_EQ(config.optim.lr, 1e-6 * static_cast<double>(config.train.batch) / 8192);
  EXPECT_EQ(config.embedding.lr, config.optim.lr);
  EXPECT_EQ(config.eval.every_steps, 2'290'835'423 / config.train.batch / 1000);
  const double planned = planned_gib(config, config.train.batch * 4095);
  EXPECT_GT(planned, 35) << "the tables alone";
  EXPECT_LT(planned, 110) << "of 131 GiB, with room for what a GPU keeps beside";
}

TEST(RankingShapes, Dlrmv3HasThePublishedWeightsAndTwoRowsForTheUnknown) {
  const Config config = shape_config("dlrmv3", {{"embedding.cut", "1"}});
  const run::RankingSetup setup = run::ranking_shape(config);
  const model::RankingOptions model = run::ranking_options(config, setup, 2'048);
  EXPECT_EQ(dense_weights(model), 16'693'585);
  EXPECT_EQ(model.max_length, 16'384);
  EXPECT_EQ(sum_of(setup.features.table_rows), 1'010'000'130);
  EXPECT_EQ(setup.features.prefix[0].least_events, 20);
  EXPECT_EQ(setup.tables[setup.features.items[1].table].dtype, DType::kF16);
}

TEST(RankingShapes, ACutLeavesEveryTable128RowsOrAllItNames) {
  for (const std::string name : {"dlrmv4", "dlrmv3"}) {
    const Config config = shape_config(name, {{"embedding.cut", "1000000"}});
    const run::RankingSetup setup = run::ranking_shape(config);
    for (std::size_t t = 0; t < setup.tables.size(); ++t) {
      const std::int64_t rows = setup.features.table_rows[t];
      EXPECT_EQ(rows, std::max<std::int64_t>(128, setup.named_rows[t] / 1'000'000)) << name;
      EXPECT_EQ(setup.tables[t].rows, rows);
    }
  }
}

TEST(RankingShapes, BenchmarksMeasureTheModelsOfTheConfigs) {
  const Config config = shape_config("dlrmv4", {{"embedding.cut", "64"}});
  const run::RankingSetup setup = run::ranking_shape(config);
  const bench::RankingShape shape = bench::dlrmv4_shape(64);
  EXPECT_EQ(shape.features.table_rows, setup.features.table_rows);
  EXPECT_EQ(sum_of(shape.whole_rows), 293'051'712);
  EXPECT_EQ(shape.model.layers, 3);
  EXPECT_EQ(shape.model.norm_length, 4096);
  EXPECT_EQ(bench::dlrmv3_shape(64).model.layers, 5);
}

}  // namespace
}  // namespace turbogr
