// The ranking model and its training step on a GPU: against an independent implementation
// (tests/fixtures), and against a CPU's.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/golden_ranking_model.h"
#include "tests/support/golden_ranking_step.h"
#include "tests/support/ranking_training.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/local_rows.h"
#include "turbogr/eval/evaluate_ranking.h"
#include "turbogr/train/ranking_trainer.h"

namespace turbogr::train {
namespace {

using test::kManyPrefixes;
using test::kManyTargets;
using test::OwnedRankingBatch;

TEST(CudaGoldenRanking, ModelsMatchInDouble) {
  TGR_SKIP_WITHOUT_GPU();
  const Context ctx({.device = Device::kCuda});
  for (const bool few : {false, true}) {
    test::check_golden_model<double>(ctx, kManyTargets, 1e-11, few);
    test::check_golden_model<double>(ctx, kManyPrefixes, 1e-11, few);
  }
}

TEST(CudaGoldenRanking, ModelsMatchInSingle) {
  TGR_SKIP_WITHOUT_GPU();
  const Context ctx({.device = Device::kCuda});
  for (const bool few : {false, true}) {
    test::check_golden_model<float>(ctx, kManyTargets, 2e-5, few);
    test::check_golden_model<float>(ctx, kManyPrefixes, 2e-5, few);
  }
}

TEST(CudaGoldenRanking, OptimisersMatch) {
  TGR_SKIP_WITHOUT_GPU();
  const Context ctx({.device = Device::kCuda});
  test::check_golden_optimisers(ctx, kManyTargets);
  test::check_golden_optimisers(ctx, kManyPrefixes);
}

TEST(CudaGoldenRanking, StepsMatch) {
  TGR_SKIP_WITHOUT_GPU();
  const Context ctx({.device = Device::kCuda});
  test::check_golden_step(ctx, kManyTargets);
  test::check_golden_step(ctx, kManyPrefixes);
}

struct Trained {
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> tables;
  std::vector<float> dense;
};

// Wide enough that bf16 takes the vector kernels and, on Hopper, its attention.
train::RankingTrainOptions wide_training() {
  train::RankingTrainOptions options = test::small_ranking_training();
  options.model.embedding = 16;
  options.model.width = 64;
  options.model.layers = 3;  // the second reads the masks that the first has made
  options.model.heads = 2;
  options.model.dq = options.model.dv = 32;
  options.model.hidden = 32;
  options.model.head_hidden = 64;
  return options;
}

struct Way {
  int steps = 4;
  bool ahead = false;  // a step is submitted before the last one is finished
  bool deterministic = false;
};

template <class T>
Trained train_on(Device device, const train::RankingTrainOptions& options, const Way& way) {
  const Context ctx({.device = device, .threads = 2, .deterministic = way.deterministic});
  const auto alone = dist::make_self();
  train::RankingTrainOptions there = options;
  there.table_memory = device;
  train::RankingTrainer<T> step(ctx, *alone, there);
  step.initialise(ctx);
  Trained trained;
  const auto record = [&](const train::RankingResult& result) {
    EXPECT_TRUE(result.finite);
    trained.losses.push_back(result.loss);
    trained.norms.push_back(result.gradient_norm);
  };
  for (int s = 0; s < way.steps; ++s) {
    OwnedRankingBatch batch = test::ranking_share(s, 0, 1);
    step.submit(ctx, batch.view());  // the batch goes before the device has read it
    if (!way.ahead || step.pending() == step.queue_length()) record(step.finish(ctx));
  }
  while (step.pending() > 0) record(step.finish(ctx));
  for (std::size_t t = 0; t < options.features.table_rows.size(); ++t) {
    trained.tables.push_back(test::vector_of<float>(ctx, step.rows().shard(t).weight_tensor()));
  }
  for (int i = 0; i < step.model().parameters().size(); ++i) {
    const auto values = test::vector_of<float>(ctx, step.model().parameters().value(i));
    trained.dense.insert(trained.dense.end(), values.begin(), values.end());
  }
  return trained;
}

double largest_gap(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double gap = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    gap = std::max(gap, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return gap;
}

template <class T>
void expect_the_hosts(const train::RankingTrainOptions& options, double loss, double weight) {
  const Trained cpu = train_on<T>(Device::kCpu, options, {.steps = 5});
  const Trained gpu = train_on<T>(Device::kCuda, options, {.steps = 5, .ahead = true});
  ASSERT_EQ(cpu.losses.size(), gpu.losses.size());
  for (std::size_t s = 0; s < cpu.losses.size(); ++s) {
    EXPECT_NEAR(gpu.losses[s], cpu.losses[s], loss * cpu.losses[s]) << s;
    EXPECT_NEAR(gpu.norms[s], cpu.norms[s], 10 * loss * cpu.norms[s]) << s;
  }
  for (std::size_t t = 0; t < cpu.tables.size(); ++t) {
    EXPECT_LT(largest_gap(gpu.tables[t], cpu.tables[t]), weight) << t;
  }
  EXPECT_LT(largest_gap(gpu.dense, cpu.dense), weight);
}

TEST(CudaRankingStep, TrainsAsTheHostDoes) {
  TGR_SKIP_WITHOUT_GPU();
  expect_the_hosts<float>(test::small_ranking_training(), 1e-5, 2e-5);
  expect_the_hosts<float>(wide_training(), 1e-5, 2e-5);
  expect_the_hosts<bf16>(wide_training(), 1e-2, 2e-2);
}

TEST(CudaRankingStep, OfFuxiWithoutAPositionMapTrainsAsTheHostDoes) {
  TGR_SKIP_WITHOUT_GPU();
  train::RankingTrainOptions options = test::small_ranking_training(model::ModelKind::kFuxi);
  options.model.maps = model::BiasKind::kTime;
  expect_the_hosts<float>(options, 1e-5, 2e-5);
}

TEST(CudaRankingStep, PartsOfABatchAddUpToIt) {
  TGR_SKIP_WITHOUT_GPU();
  train::RankingTrainOptions options = wide_training();
  const Trained whole = train_on<float>(Device::kCuda, options, {});
  options.batch = model::size_of(options.memory);
  options.memory.layers.sequences = 2;
  options.memory.layers.capacity = 50;
  options.memory.targets = 7;
  const Trained parts = train_on<float>(Device::kCuda, options, {.ahead = true});
  for (std::size_t s = 0; s < whole.losses.size(); ++s) {
    EXPECT_NEAR(parts.losses[s], whole.losses[s], 1e-5 * whole.losses[s]) << s;
  }
  EXPECT_LT(largest_gap(parts.dense, whole.dense), 1e-5);
  for (std::size_t t = 0; t < whole.tables.size(); ++t) {
    EXPECT_LT(largest_gap(parts.tables[t], whole.tables[t]), 1e-5);
  }
}

TEST(CudaRankingEvaluation, IsTheHosts) {
  TGR_SKIP_WITHOUT_GPU();
  const train::RankingTrainOptions options = wide_training();
  std::vector<eval::ClickFigures> figures;
  for (const Device device : {Device::kCpu, Device::kCuda}) {
    const Context ctx({.device = device, .threads = 2});
    embedding::LocalRows<float> rows(test::tables_of(options), device);
    rows.initialise(ctx);
    eval::RankingEvaluation evaluation = {.features = options.features, .memory = options.memory};
    evaluation.memory.layers.inference = true;
    model::RankingModel<float> model(ctx, options.model, evaluation.memory);
    model.initialise(ctx, 5);
    eval::RankingEvaluator<float> evaluator(ctx, model, rows, evaluation);
    for (int s = 0; s < 3; ++s) {
      OwnedRankingBatch batch = test::ranking_share(s, 0, 1);
      const model::RankingBatch view = batch.view();
      std::vector<std::int64_t> groups;
      for (std::int64_t i = 0; i < view.num_targets(); ++i) groups.push_back(i / 4);
      evaluator.add(ctx, view, test::view_of(std::as_const(groups)));
    }
    figures.push_back(evaluator.clicks(0).figures());
  }
  ASSERT_TRUE(figures[0].auc && figures[1].auc);
  EXPECT_NEAR(*figures[1].auc, *figures[0].auc, 1e-3);
  EXPECT_NEAR(*figures[1].normalized_entropy, *figures[0].normalized_entropy, 1e-5);
  EXPECT_EQ(figures[1].groups, figures[0].groups);
}

// Steps in a row without waiting are the steps one by one, to the bit.
TEST(CudaRankingStep, RepeatsItsBits) {
  TGR_SKIP_WITHOUT_GPU();
  const train::RankingTrainOptions options = wide_training();
  const Trained one = train_on<float>(Device::kCuda, options, {.deterministic = true});
  const Trained other =
      train_on<float>(Device::kCuda, options, {.ahead = true, .deterministic = true});
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_TRUE(one.dense == other.dense);
  EXPECT_TRUE(one.tables == other.tables);
}

}  // namespace
}  // namespace turbogr::train
