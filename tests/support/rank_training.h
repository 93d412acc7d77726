// Short trainings over thread ranks, and alone, to be compared: losses and weights.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/rank_batches.h"
#include "tests/support/whole_table.h"
#include "turbogr/core/check.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::train {

inline constexpr test::StepShape kShape;
inline constexpr int kSteps = 6;

inline train::RetrievalOptions options_of(model::ModelKind kind = model::ModelKind::kHstu) {
  train::RetrievalOptions options;
  options.model.kind = kind;
  options.model.layers = 2;
  options.model.width = 8;
  options.model.heads = 2;
  options.model.dq = 4;
  options.model.dv = 4;
  options.model.feed_forward = 8;
  options.model.max_length = 16;
  options.model.norm_length = 27;
  options.model.dropout = 0.25;
  options.memory.capacity = 200;
  options.temperature = 1;  // a small temperature makes large numbers of rounding errors
  options.negatives.count = 3;
  options.dense.rate = 1e-2;
  options.table.rate = 1e-2;
  options.accumulate = 2;
  options.seed = 5;
  return options;
}

// Two batches a step: accumulation over ranks, too.
inline std::vector<data::Batch> batches_of(int step, int rank, int ranks) {
  return {test::share_of(kShape, 2 * step, rank, ranks),
          test::share_of(kShape, 2 * step + 1, rank, ranks)};
}

struct Outcome {
  std::vector<train::StepResult> results;
  std::vector<float> weights;  // the tables, then the dense parameters
};

template <class T>
std::vector<float> weights_of(const Context& ctx, train::RetrievalTrainer<T>& trainer) {
  trainer.rows().settle(ctx);
  std::vector<float> all = test::whole_of(ctx, trainer.rows(), trainer.table().weight_tensor());
  for (std::size_t t = 1; t <= trainer.options().features.tables.size(); ++t) {
    const std::vector<float> rows =
        test::whole_of(ctx, trainer.rows(), trainer.rows().shard(t).weight_tensor(), t);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  for (const NamedTensor& tensor : trainer.model_tensors()) {
    const auto* values = reinterpret_cast<const float*>(tensor.data);
    all.insert(all.end(), values, values + tensor.bytes() / sizeof(float));
  }
  return all;
}

// Of targets in an imagined epoch.
inline std::vector<std::int64_t> counts_of(const train::RetrievalOptions& options,
                                           std::int64_t items = kShape.items) {
  std::vector<std::int64_t> counts;
  if (options.negatives.kind == train::NegativeKind::kUniform) return counts;
  for (std::int64_t item = 0; item < items; ++item) counts.push_back(item % 7);
  return counts;
}

template <class T>
Outcome train_alone(const train::RetrievalOptions& options) {
  const Context ctx({.threads = 1});
  train::RetrievalTrainer<T> trainer(ctx, options, kShape.items, counts_of(options));
  trainer.initialise(ctx);
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    outcome.results.push_back(trainer.step(ctx, batches_of(step, 0, 1)));
  }
  outcome.weights = weights_of(ctx, trainer);
  return outcome;
}

struct Layout {
  int ranks = 1;
  int group = 1;
};

// drain_at: a step after which everything is ended, as a checkpoint does. items: of the table; more
// than the batches' are negatives alone.
template <class T>
Outcome train_on_ranks(const train::RetrievalOptions& given, const Layout& layout,
                       train::RankOptions options, int drain_at = -1,
                       std::int64_t items = kShape.items) {
  Outcome outcome;
  std::mutex mutex;
  dist::run_threads(layout.ranks, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    train::RetrievalOptions own = given;
    own.ranks = options;
    own.ranks.topology = dist::make_topology(world.nodes(), layout.group);
    train::RetrievalTrainer<T> trainer(ctx, world, own, items, counts_of(own, items));
    trainer.initialise(ctx);
    std::vector<train::StepResult> results;
    for (int step = 0; step < kSteps; ++step) {
      const auto batches = batches_of(step, world.rank(), world.size());
      trainer.submit(ctx, batches);
      while (trainer.pending() > (step == drain_at ? 0 : trainer.queue_length() - 1)) {
        results.push_back(trainer.finish(ctx));
      }
    }
    while (trainer.pending() > 0) results.push_back(trainer.finish(ctx));
    EXPECT_EQ(trainer.steps_done(), kSteps);
    const std::vector<float> weights = weights_of(ctx, trainer);
    const std::lock_guard lock(mutex);
    if (outcome.results.empty()) {
      outcome = {results, weights};
    } else {
      // Every rank tells the same story and holds the same dense weights.
      TGR_CHECK(outcome.weights == weights, "ranks differ in their weights");
      for (int step = 0; step < kSteps; ++step) {
        const auto at = static_cast<std::size_t>(step);
        const train::StepResult &first = outcome.results[at], &other = results[at];
        TGR_CHECK(first.loss == other.loss || !(first.finite || other.finite),
                  "ranks differ in step ", step);
      }
    }
  });
  return outcome;
}

inline void expect_near(const Outcome& a, const Outcome& b, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(a.results.size(), b.results.size()) << what;
  for (std::size_t i = 0; i < a.results.size(); ++i) {
    EXPECT_NEAR(a.results[i].loss, b.results[i].loss, tolerance) << what << ", step " << i;
    EXPECT_NEAR(a.results[i].gradient_norm, b.results[i].gradient_norm, 10 * tolerance) << what;
    EXPECT_EQ(a.results[i].tokens, b.results[i].tokens) << what;
    EXPECT_EQ(a.results[i].step, b.results[i].step) << what;
    EXPECT_EQ(a.results[i].rate, b.results[i].rate) << what;
  }
  ASSERT_EQ(a.weights.size(), b.weights.size());
  double most = 0;
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a.weights[i]) - b.weights[i]));
  }
  EXPECT_LT(most, 30 * tolerance) << what;
}

inline void expect_equal(const Outcome& a, const Outcome& b, const std::string& what) {
  ASSERT_EQ(a.results.size(), b.results.size()) << what;
  for (std::size_t i = 0; i < a.results.size(); ++i) {
    EXPECT_EQ(a.results[i].loss, b.results[i].loss) << what << ", step " << i;
    // For reading only, and its squares may be summed in two parts.
    EXPECT_NEAR(a.results[i].gradient_norm, b.results[i].gradient_norm,
                1e-6 * a.results[i].gradient_norm)
        << what << ", step " << i;
  }
  EXPECT_TRUE(a.weights == b.weights) << what;
}

// SGD for the comparison with one rank: AdamW's first steps divide a gradient by itself, so that a
// rounding error where a gradient is nearly zero becomes a step of full size.
inline train::RetrievalOptions smooth_options() {
  train::RetrievalOptions options = options_of();
  options.table_optimiser = embedding::SparseOptimiser::kSgd;
  options.dense.epsilon = 1e-2;
  return options;
}

}  // namespace turbogr::train
