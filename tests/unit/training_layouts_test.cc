// Training over thread ranks against training on one: the same losses and weights up to the order
// of sums, for every layout.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/rank_training.h"
#include "tests/support/settled_mean.h"

namespace turbogr::train {
namespace {

TEST(Layouts, AnyLayoutIsOneRankUpToRounding) {
  const Outcome alone = train_alone<float>(smooth_options());
  EXPECT_LT(alone.results.back().loss, 2.0);
  for (const Layout layout : {Layout{1, 1}, {2, 2}, {2, 1}, {3, 3}, {4, 2}, {4, 1}}) {
    const Outcome many = train_on_ranks<float>(smooth_options(), layout, {});
    expect_near(alone, many, 2e-6,
                std::to_string(layout.ranks) + " ranks, groups of " + std::to_string(layout.group));
  }
  // More ranks than sequences: some have nothing to do.
  expect_near(alone, train_on_ranks<float>(smooth_options(), {12, 4}, {}), 2e-6, "12 ranks");
}

TEST(Layouts, TheSameForClippingFuxiSharedNegativesAndAdaGrad) {
  train::RetrievalOptions options = smooth_options();
  options.clip = 0.05;
  options.negatives.shared = true;
  options.table_optimiser = embedding::SparseOptimiser::kAdaGrad;
  options.table.epsilon = 1e-2;
  expect_near(train_alone<float>(options), train_on_ranks<float>(options, {2, 2}, {}), 2e-6,
              "clipped, shared");
  train::RetrievalOptions fuxi = options_of(model::ModelKind::kFuxi);
  fuxi.dense.epsilon = fuxi.table.epsilon = 1e-2;
  expect_near(train_alone<float>(fuxi), train_on_ranks<float>(fuxi, {3, 3}, {}), 2e-6, "fuxi");
}

TEST(Layouts, NegativesComeFromThePositivesOfAllRanks) {
  for (const train::NegativeKind kind :
       {train::NegativeKind::kInBatch, train::NegativeKind::kMixed}) {
    for (const bool shared : {false, true}) {
      train::RetrievalOptions options = smooth_options();
      options.negatives.kind = kind;
      if (kind == train::NegativeKind::kMixed) options.negatives.mix = {1, 1, 1};
      options.negatives.count = 9;
      options.negatives.shared = shared;
      const Outcome alone = train_alone<float>(options);
      for (const Layout layout : {Layout{2, 2}, {4, 2}, {12, 4}}) {
        expect_near(alone,
                    train_on_ranks<float>(options, layout,
                                          {.schedule = train::StepSchedule::kExactPrefetch}),
                    2e-6, "kind " + std::to_string(static_cast<int>(kind)));
      }
    }
  }
}

TEST(Layouts, TargetsAreCountedOverAllRanks) {
  train::RetrievalOptions options = smooth_options();
  options.parts = {.prefix = 2, .targets = 3};
  const Outcome alone = train_alone<float>(options);
  EXPECT_LT(alone.results[0].predicting, alone.results[0].tokens);
  for (const Layout layout : {Layout{1, 1}, {3, 3}, {4, 2}, {12, 4}}) {
    const Outcome many = train_on_ranks<float>(options, layout, {});
    expect_near(alone, many, 2e-6, std::to_string(layout.ranks) + " ranks");
    EXPECT_EQ(alone.results[0].predicting, many.results[0].predicting);
  }
}

// One group has no others to average with, and several begin as exact ones do: they part with the
// first update of rows, in which each takes its own gradients for those of all.
TEST(Layouts, AveragedReplicasAreExactUntilTheyPart) {
  const train::RankOptions options = {.replicas = embedding::ReplicaMode::kAverage,
                                      .average_every = 2};
  expect_equal(train_on_ranks<float>(options_of(), {2, 2}, {}),
               train_on_ranks<float>(options_of(), {2, 2}, options), "one group");
  const Outcome averaged = train_on_ranks<float>(options_of(), {4, 2}, options);
  const Outcome exact = train_on_ranks<float>(options_of(), {4, 2}, {});
  EXPECT_EQ(averaged.results[0].loss, exact.results[0].loss);
  EXPECT_NE(averaged.results[1].loss, exact.results[1].loss);
  expect_equal(averaged, train_on_ranks<float>(options_of(), {4, 2}, options), "again");
}

// Between two means, too: a checkpoint and an evaluation hold what every group has learnt.
TEST(Layouts, AveragedReplicasSettleOnTheirMean) {
  constexpr int kRanks = 3;
  dist::run_threads(kRanks, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    train::RetrievalOptions options = options_of();
    options.ranks = {.topology = dist::make_topology(world.nodes(), 1),
                     .replicas = embedding::ReplicaMode::kAverage,
                     .average_every = 100};
    train::RetrievalTrainer<float> trainer(ctx, world, options, kShape.items);
    trainer.initialise(ctx);
    for (int step = 0; step < 3; ++step) {
      trainer.step(ctx, batches_of(step, world.rank(), world.size()));
    }
    test::expect_settles_on_mean(ctx, world, trainer.rows(), 1);
  });
}

}  // namespace
}  // namespace turbogr::train
