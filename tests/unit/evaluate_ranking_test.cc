#include "turbogr/eval/evaluate_ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/ranking_training.h"
#include "turbogr/data/samples/sample_batch.h"
#include "turbogr/data/windows.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/local_rows.h"
#include "turbogr/eval/sample_view.h"
#include "turbogr/train/ranking_trainer.h"

namespace turbogr::eval {
namespace {

using test::message_of;
using test::OwnedRankingBatch;
using test::ranking_share;
using test::tables_of;

constexpr int kBatches = 2;

train::RankingTrainOptions options_without_dropout() {
  train::RankingTrainOptions options = test::small_ranking_training();
  options.model.input_dropout = options.model.dropout = 0;
  return options;
}

RankingEvaluation evaluation_of(const train::RankingTrainOptions& options) {
  RankingEvaluation evaluation = {.features = options.features, .memory = options.memory};
  evaluation.memory.layers.inference = true;
  return evaluation;
}

// The group of a target is its sequence, as all ranks number them.
std::vector<std::int64_t> groups_of(const OwnedRankingBatch& batch, int step) {
  std::vector<std::int64_t> groups;
  for (std::size_t b = 0; b < batch.num_targets.size(); ++b) {
    const auto first = static_cast<std::size_t>(batch.offsets[b]);
    const auto sequence = static_cast<std::int64_t>(batch.row_keys[first] >> 20);
    groups.insert(groups.end(), static_cast<std::size_t>(batch.num_targets[b]),
                  1000 * step + sequence);
  }
  return groups;
}

// Trains so many steps, then evaluates the same batches with a model for inference alone.
template <class T>
std::vector<ClickFigures> figures_of(const Context& ctx, dist::Communicator& world, int steps) {
  train::RankingTrainOptions options = options_without_dropout();
  options.ranks.topology = dist::make_topology(world.nodes(), world.size());
  train::RankingTrainer<T> step(ctx, world, options);
  step.initialise(ctx);
  for (int s = 0; s < steps; ++s) {
    OwnedRankingBatch batch = ranking_share(s % kBatches, world.rank(), world.size());
    step.run(ctx, batch.view());
  }
  const RankingEvaluation evaluation = evaluation_of(options);
  model::RankingModel<T> inference(ctx, options.model, evaluation.memory);
  for (int i = 0; i < inference.parameters().size(); ++i) {
    const Tensor& value = step.model().parameters().value(i);
    std::copy_n(value.data(), value.bytes(), inference.parameters().value(i).data());
  }
  inference.refresh(ctx);
  RankingEvaluator<T> evaluator(ctx, inference, step.rows(), evaluation);
  std::vector<ClickFigures> figures;
  for (int pass = 0; pass < 2; ++pass) {  // the second as if there had been no first
    evaluator.clear();
    for (int s = 0; s < kBatches; ++s) {
      OwnedRankingBatch batch = ranking_share(s, world.rank(), world.size());
      const std::vector<std::int64_t> groups = groups_of(batch, s);
      evaluator.add(ctx, batch.view(), test::view_of(groups));
    }
    evaluator.add_up(world);
    figures = {evaluator.clicks(0).figures(), evaluator.clicks(1).figures()};
  }
  EXPECT_GT(evaluator.out_of_range(), 0);
  return figures;
}

template <class T>
std::vector<ClickFigures> figures_alone(int steps) {
  const Context ctx({.threads = 2});
  const auto alone = dist::make_self();
  return figures_of<T>(ctx, *alone, steps);
}

TEST(EvaluateRanking, AModelThatHasLearntOrdersTargets) {
  const std::vector<ClickFigures> before = figures_alone<float>(0),
                                  after = figures_alone<float>(20);
  EXPECT_GT(after[0].targets, 20);
  EXPECT_LT(after[1].targets, after[0].targets);  // some have no weight
  EXPECT_GT(after[0].auc.value(), 0.95);
  EXPECT_LT(before[0].auc.value(), 0.8);
  EXPECT_LT(after[0].normalized_entropy.value(), 0.7);
  EXPECT_GT(after[0].gauc.value(), before[0].gauc.value());
  EXPECT_GT(figures_alone<bf16>(20)[0].auc.value(), 0.95);
}

// What the step saw before its update, scored by hand.
TEST(EvaluateRanking, ScoresAreTheLogitsOfTraining) {
  const train::RankingTrainOptions options = options_without_dropout();
  const Context ctx({.threads = 1});
  const auto alone = dist::make_self();
  train::RankingTrainer<float> step(ctx, *alone, options);
  step.initialise(ctx);
  OwnedRankingBatch batch = ranking_share(0, 0, 1);
  const std::vector<std::int64_t> groups = groups_of(batch, 0);
  RankingEvaluation evaluation = evaluation_of(options);
  evaluation.regression = {0, 1};
  RankingEvaluator<float> evaluator(ctx, step.model(), step.rows(), evaluation);
  evaluator.add(ctx, batch.view(), test::view_of(groups));
  step.run(ctx, batch.view());
  ClickMetrics clicks;
  ErrorMetrics errors;
  for (std::int64_t i = 0; i < step.logits().rows; ++i) {
    const auto at = static_cast<std::size_t>(2 * i);
    clicks.add({.probability = 1 / (1 + std::exp(-static_cast<double>(step.logits()(i, 0)))),
                .positive = batch.labels[at] > 0,
                .weight = batch.weights[at],
                .group = groups[static_cast<std::size_t>(i)]});
    errors.add(step.logits()(i, 1), batch.labels[at + 1], batch.weights[at + 1]);
  }
  const ClickFigures got = evaluator.clicks(0).figures(), wanted = clicks.figures();
  EXPECT_EQ(got.auc, wanted.auc);
  EXPECT_EQ(got.gauc, wanted.gauc);
  EXPECT_EQ(got.normalized_entropy, wanted.normalized_entropy);
  EXPECT_TRUE(wanted.auc.has_value());
  EXPECT_EQ(evaluator.errors(1).mean_squared(), errors.mean_squared());
  EXPECT_EQ(evaluator.clicks(1).figures().targets, 0);
}

TEST(EvaluateRanking, GroupsAreUsersOrSamples) {
  data::SampleBatch batch;
  batch.offsets = {0, 3, 4, 6};
  batch.num_targets = {2, 1, 0};  // the last one only stands in for a rank that has none left
  batch.target_users = {9, 9, 9};
  for (const std::uint64_t sample : {7, 7, 7, 4, 5, 5}) {
    batch.row_keys.push_back((sample << data::kPositionBits) + batch.row_keys.size());
  }
  SampleView view(1);
  const auto groups = [&](GroupBy by) {
    const View<const std::int64_t, 1> got = view.groups(batch, by);
    return std::vector<std::int64_t>(got.data, got.data + got.shape[0]);
  };
  EXPECT_EQ(groups(GroupBy::kUser), (std::vector<std::int64_t>{9, 9, 9}));
  EXPECT_EQ(groups(GroupBy::kRequest), (std::vector<std::int64_t>{7, 7, 4}));
  EXPECT_EQ(groups(GroupBy::kRequest).size(), 3u) << "nothing is left of the call before";
}

TEST(EvaluateRanking, AnyNumberOfRanksFindsTheSame) {
  const std::vector<ClickFigures> alone = figures_alone<float>(3);
  for (const int ranks : {2, 4}) {
    std::mutex mutex;
    dist::run_threads(ranks, [&](dist::Communicator& world) {
      const Context ctx({.threads = 1});
      const std::vector<ClickFigures> got = figures_of<float>(ctx, world, 3);
      const std::lock_guard lock(mutex);
      for (std::size_t task = 0; task < alone.size(); ++task) {
        EXPECT_EQ(got[task].targets, alone[task].targets);
        EXPECT_EQ(got[task].groups, alone[task].groups);
        EXPECT_NEAR(got[task].auc.value(), alone[task].auc.value(), 1e-12);
        EXPECT_NEAR(got[task].normalized_entropy.value(), alone[task].normalized_entropy.value(),
                    1e-5);
      }
    });
  }
}

TEST(EvaluateRanking, SaysWhatIsWrong) {
  const train::RankingTrainOptions options = options_without_dropout();
  const Context ctx({.threads = 1});
  embedding::LocalRows<float> rows(tables_of(options), Device::kCpu);
  RankingEvaluation evaluation = evaluation_of(options);
  model::RankingModel<float> inference(ctx, options.model, evaluation.memory);
  RankingEvaluator<float> evaluator(ctx, inference, rows, evaluation);
  OwnedRankingBatch batch = ranking_share(0, 0, 1);
  const std::vector<std::int64_t> few(3);
  EXPECT_NE(message_of([&] {
              evaluator.add(ctx, batch.view(), test::view_of(few));
            }).find("ranking evaluation: 3 groups"),
            std::string::npos);
  evaluation.regression = {1};
  EXPECT_EQ(message_of([&] { RankingEvaluator<float>(ctx, inference, rows, evaluation); }),
            "an evaluation of 1 tasks with a model of 2");
}

}  // namespace
}  // namespace turbogr::eval
