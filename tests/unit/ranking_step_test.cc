// A training step of the ranking task: against an independent implementation (tests/fixtures), on
// one rank and on several, on one thread and on several.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/golden_ranking_step.h"
#include "tests/support/messages.h"
#include "tests/support/ranking_case.h"
#include "tests/support/ranking_training.h"
#include "tests/support/settled_mean.h"
#include "tests/support/tolerance.h"
#include "tests/support/whole_table.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/train/ranking_trainer.h"

namespace turbogr::train {
namespace {

using test::kItems;
using test::kSequences;
using test::message_of;
using test::OwnedRankingBatch;
using test::ranking_share;
using test::small_ranking_training;
using test::tables_of;

const Context& cpu() {
  static const Context ctx({.threads = 2});
  return ctx;
}

TEST(RankingStep, OfManyTargetsMatchesAnotherImplementation) {
  test::check_golden_step(cpu(), test::kManyTargets);
}
TEST(RankingStep, OfManyPrefixesMatchesAnotherImplementation) {
  test::check_golden_step(cpu(), test::kManyPrefixes);
}

constexpr int kSteps = 6;

struct Outcome {
  std::vector<train::RankingResult> results;
  std::vector<std::vector<float>> tables, accumulators;
  std::vector<float> dense;
};

template <class T>
std::vector<float> dense_of(train::RankingTrainer<T>& step) {
  std::vector<float> all;
  for (int i = 0; i < step.model().parameters().size(); ++i) {
    const Tensor& value = step.model().parameters().value(i);
    const auto* values = reinterpret_cast<const float*>(value.data());
    all.insert(all.end(), values, values + value.size());
  }
  return all;
}

// Steps are submitted as far ahead as the schedule lets them be, their batches gone by then.
template <class T>
Outcome train(const Context& ctx, dist::Communicator& world,
              const train::RankingTrainOptions& options, int steps = kSteps,
              int different = kSteps) {
  train::RankingTrainer<T> step(ctx, world, options);
  embedding::RowSource<T>& rows = step.rows();
  step.initialise(ctx);
  Outcome outcome;
  for (int s = 0; s < steps; ++s) {
    OwnedRankingBatch batch = ranking_share(s % different, world.rank(), world.size());
    step.submit(ctx, batch.view());
    if (step.pending() == step.queue_length()) outcome.results.push_back(step.finish(ctx));
  }
  while (step.pending() > 0) outcome.results.push_back(step.finish(ctx));
  for (std::size_t t = 0; t < options.features.table_rows.size(); ++t) {
    outcome.tables.push_back(test::whole_of(ctx, rows, rows.shard(t).weight_tensor(), t));
    outcome.accumulators.push_back(test::whole_of(ctx, rows, rows.shard(t).second_moment(), t));
  }
  outcome.dense = dense_of(step);
  return outcome;
}

template <class T>
Outcome train_alone(const train::RankingTrainOptions& options, int threads = 1, int steps = kSteps,
                    int different = kSteps) {
  const Context ctx({.threads = threads});
  const auto alone = dist::make_self();
  return train<T>(ctx, *alone, options, steps, different);
}

// Every rank must tell the same.
Outcome train_on_ranks(const train::RankingTrainOptions& given, int ranks, int group,
                       int steps = kSteps) {
  Outcome outcome;
  std::mutex mutex;
  dist::run_threads(ranks, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    train::RankingTrainOptions options = given;
    options.ranks.topology = dist::make_topology(world.nodes(), group);
    options.ranks.device_rows = ranks == 1;  // one rank asks itself, too
    Outcome own = train<float>(ctx, world, options, steps);
    const std::lock_guard lock(mutex);
    if (outcome.results.empty()) {
      outcome = std::move(own);
      return;
    }
    TGR_CHECK(outcome.tables == own.tables && outcome.dense == own.dense, "ranks differ");
    for (std::size_t s = 0; s < own.results.size(); ++s) {
      TGR_CHECK(outcome.results[s].loss == own.results[s].loss, "ranks differ in step ", s);
    }
  });
  return outcome;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  EXPECT_LT(most, tolerance) << what;
}

class RankingStepOf : public ::testing::TestWithParam<model::ModelKind> {};
INSTANTIATE_TEST_SUITE_P(Kind, RankingStepOf, test::model_kinds(), test::kind_name);

// Up to the order of sums, which ranks change.
TEST_P(RankingStepOf, AnyNumberOfRanksIsOneRankUpToRounding) {
  const Outcome alone = train_alone<float>(small_ranking_training(GetParam()));
  EXPECT_EQ(alone.results[0].rate, 0);
  EXPECT_EQ(alone.results[1].rate, 0.01);
  EXPECT_EQ(alone.results[2].rate, 0.02);
  for (const auto& [ranks, group] :
       {std::pair{1, 1}, std::pair{2, 2}, std::pair{4, 4}, std::pair{4, 2}, std::pair{12, 12}}) {
    const std::string what = std::to_string(ranks) + " ranks in groups of " + std::to_string(group);
    const Outcome many = train_on_ranks(small_ranking_training(GetParam()), ranks, group);
    ASSERT_EQ(many.results.size(), alone.results.size());
    if (ranks == 1) {  // nothing is summed in another order
      EXPECT_TRUE(many.dense == alone.dense && many.tables == alone.tables);
    }
    for (std::size_t s = 0; s < alone.results.size(); ++s) {
      const train::RankingResult &a = alone.results[s], &b = many.results[s];
      EXPECT_NEAR(a.loss, b.loss, 5e-7) << what << ", step " << s;
      EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-5) << what << ", step " << s;
      EXPECT_EQ(a.tokens, b.tokens);
      EXPECT_EQ(a.predicting, b.predicting);
      EXPECT_EQ(a.out_of_range, b.out_of_range);
      EXPECT_EQ(a.rate, b.rate);
    }
    expect_near(alone.dense, many.dense, 2e-6, what);
    for (std::size_t t = 0; t < alone.tables.size(); ++t) {
      expect_near(alone.tables[t], many.tables[t], 2e-6, what + ", a table");
      expect_near(alone.accumulators[t], many.accumulators[t], 2e-6, what + ", accumulators");
    }
  }
}

// A batch larger than the model's memory goes through it part by part.
TEST_P(RankingStepOf, PartsOfABatchAddUpToIt) {
  train::RankingTrainOptions options = small_ranking_training(GetParam());
  const Outcome whole = train_alone<float>(options);
  options.batch = model::size_of(options.memory);
  options.memory.layers.sequences = 2;
  options.memory.layers.capacity = 40;
  options.memory.targets = 7;
  const Outcome parts = train_alone<float>(options);
  for (std::size_t s = 0; s < whole.results.size(); ++s) {
    EXPECT_NEAR(parts.results[s].loss, whole.results[s].loss, 5e-7) << s;
    EXPECT_NEAR(parts.results[s].gradient_norm, whole.results[s].gradient_norm, 1e-5) << s;
  }
  expect_near(whole.dense, parts.dense, 2e-6, "dense weights");
  for (std::size_t t = 0; t < whole.tables.size(); ++t) {
    expect_near(whole.tables[t], parts.tables[t], 2e-6, "a table");
  }
  options.memory.layers.capacity = 5;  // less than a sequence
  EXPECT_NE(message_of([&] {
              train_alone<float>(options, 1, 1);
            }).find(" tokens in a model planned for 5; raise the token budget"),
            std::string::npos);
}

// Sequences in another order: the scores are those, bit for bit, in that order, dropout included.
// Loss, gradients and what they make of weights and rows differ by the order of their sums alone.
TEST_P(RankingStepOf, TheOrderOfSequencesChangesNoScore) {
  const std::vector<std::int64_t> plain = {0, 1, 2, 3, 4, 5, 6, 7, 8},
                                  other = {4, 8, 0, 7, 2, 1, 6, 5, 3};
  ASSERT_EQ(std::ssize(plain), kSequences);
  struct Trained {
    std::vector<RankingResult> results;
    std::vector<std::map<std::uint64_t, std::vector<float>>> scores;  // of each sequence's key
    std::vector<std::vector<float>> tables, accumulators;
    std::vector<float> dense;
  };
  const auto trained = [&](const std::vector<std::int64_t>& order) {
    const Context ctx({.threads = 2});
    const auto alone = dist::make_self();
    RankingTrainOptions options = small_ranking_training(GetParam());
    options.model.input_dropout = 0.2;
    options.model.dropout = 0.1;
    RankingTrainer<float> step(ctx, *alone, options);
    step.initialise(ctx);
    Trained made;
    for (int s = 0; s < kSteps; ++s) {
      OwnedRankingBatch batch = test::ranking_sequences(s, order);
      made.results.push_back(step.run(ctx, batch.view()));
      auto& scores = made.scores.emplace_back();
      std::int64_t target = 0;
      for (std::size_t b = 0; b < batch.num_targets.size(); ++b) {
        const auto first = static_cast<std::size_t>(batch.offsets[b]);
        std::vector<float>& own = scores[batch.row_keys[first] >> 20];
        for (std::int64_t t = 0; t < batch.num_targets[b]; ++t, ++target) {
          for (std::int64_t k = 0; k < 2; ++k) own.push_back(step.logits()(target, k));
        }
      }
    }
    for (std::size_t t = 0; t < options.features.table_rows.size(); ++t) {
      embedding::RowSource<float>& rows = step.rows();
      made.tables.push_back(test::whole_of(ctx, rows, rows.shard(t).weight_tensor(), t));
      made.accumulators.push_back(test::whole_of(ctx, rows, rows.shard(t).second_moment(), t));
    }
    made.dense = dense_of(step);
    return made;
  };
  const Trained a = trained(plain), b = trained(other);
  // The first two steps see the same weights: the rate is 0 in the first.
  for (std::size_t s = 0; s < 2; ++s) EXPECT_EQ(a.scores[s], b.scores[s]) << "step " << s;
  for (std::size_t s = 0; s < a.results.size(); ++s) {
    EXPECT_NEAR(a.results[s].loss, b.results[s].loss, 5e-7) << s;
    EXPECT_NEAR(a.results[s].gradient_norm, b.results[s].gradient_norm, 1e-5) << s;
    for (const auto& [sequence, scores] : a.scores[s]) {
      expect_near(scores, b.scores[s].at(sequence), 1e-4, "scores");
    }
  }
  EXPECT_NE(a.results[0].loss, a.results[1].loss);
  expect_near(a.dense, b.dense, 2e-6, "dense weights");
  for (std::size_t t = 0; t < a.tables.size(); ++t) {
    expect_near(a.tables[t], b.tables[t], 2e-6, "a table");
    expect_near(a.accumulators[t], b.accumulators[t], 2e-6, "accumulators");
  }
}

TEST(RankingStep, RunsAsManyAheadAsItsScheduleHas) {
  const Context ctx({.threads = 1});
  const auto alone = dist::make_self();
  train::RankingTrainOptions options = small_ranking_training();
  options.ranks.schedule = StepSchedule::kOverlap;
  train::RankingTrainer<float> step(ctx, *alone, options);
  step.initialise(ctx);
  EXPECT_EQ(message_of([&] { step.finish(ctx); }),
            "no step was submitted; there is nothing to finish");
  OwnedRankingBatch batch = ranking_share(0, 0, 1);
  step.submit(ctx, batch.view());
  step.submit(ctx, batch.view());
  EXPECT_EQ(message_of([&] { step.submit(ctx, batch.view()); }),
            "a step was submitted while 2 are on their way; finish one first");
}

void expect_same_bits(const Outcome& a, const Outcome& b, const std::string& what) {
  ASSERT_EQ(a.results.size(), b.results.size()) << what;
  for (std::size_t s = 0; s < a.results.size(); ++s) {
    EXPECT_EQ(a.results[s].step, b.results[s].step) << what;
    EXPECT_EQ(a.results[s].loss, b.results[s].loss) << what << ", step " << s;
    EXPECT_EQ(a.results[s].gradient_norm, b.results[s].gradient_norm) << what << ", step " << s;
    EXPECT_EQ(a.results[s].rate, b.results[s].rate) << what << ", step " << s;
    EXPECT_EQ(a.results[s].out_of_range, b.results[s].out_of_range) << what << ", step " << s;
  }
  EXPECT_TRUE(a.dense == b.dense) << what;
  EXPECT_TRUE(a.tables == b.tables) << what;
  EXPECT_TRUE(a.accumulators == b.accumulators) << what;
}

constexpr int kManySteps = 20;

// More steps than are ever in flight, of few rows, so that neighbours share most of them.
TEST_P(RankingStepOf, SchedulesThatPromiseItGiveTheBitsOfSerial) {
  train::RankingTrainOptions options = small_ranking_training(GetParam());
  for (const auto& [ranks, group] :
       {std::pair{1, 1}, std::pair{2, 2}, std::pair{4, 2}, std::pair{3, 3}}) {
    options.ranks.schedule = StepSchedule::kSerial;
    const Outcome serial = train_on_ranks(options, ranks, group, kManySteps);
    for (const StepSchedule schedule : {StepSchedule::kOverlap, StepSchedule::kExactPrefetch}) {
      options.ranks.schedule = schedule;
      expect_same_bits(
          serial, train_on_ranks(options, ranks, group, kManySteps),
          std::to_string(ranks) + " ranks, schedule " + std::to_string(static_cast<int>(schedule)));
    }
  }
}

// A rank alone with its own rows, and batches in parts.
TEST(RankingStep, SchedulesChangeNothingOfOneRank) {
  train::RankingTrainOptions options = small_ranking_training();
  options.batch = model::size_of(options.memory);
  options.memory.layers.sequences = 2;
  const Outcome serial = train_alone<bf16>(options, 2);
  for (const StepSchedule schedule : {StepSchedule::kOverlap, StepSchedule::kExactPrefetch}) {
    options.ranks.schedule = schedule;
    expect_same_bits(serial, train_alone<bf16>(options, 2), "one rank");
  }
}

TEST(RankingStep, SemiAsyncReadsRowsBeforeTheLastUpdate) {
  train::RankingTrainOptions options = small_ranking_training();
  const Outcome serial = train_on_ranks(options, 2, 2, kManySteps);
  options.ranks.schedule = StepSchedule::kSemiAsync;
  options.ranks.warmup = kManySteps;
  expect_same_bits(serial, train_on_ranks(options, 2, 2, kManySteps), "no step is late");
  options.ranks.warmup = 0;
  const Outcome late = train_on_ranks(options, 2, 2, kManySteps);
  expect_same_bits(late, train_on_ranks(options, 2, 2, kManySteps), "twice the same");
  // The first step's rate is 0, so rows are what they were until the second's update, which the
  // third misses.
  EXPECT_EQ(late.results[1].loss, serial.results[1].loss);
  EXPECT_NE(late.results[2].loss, serial.results[2].loss);
  EXPECT_NEAR(late.results.back().loss, serial.results.back().loss, 0.05);
}

// A batch a rank: of as many targets as the others', with other users and items.
OwnedRankingBatch own_batch(int step, int rank) {
  OwnedRankingBatch batch = ranking_share(step, 0, 1);
  const std::int64_t rows[] = {test::kUsers, kItems, kItems, 5};
  for (std::size_t f = 0; f < batch.ids.size(); ++f) {
    for (std::int64_t& id : batch.ids[f]) id = (id + 7 * rank) % rows[f];
  }
  return batch;
}

std::vector<std::vector<float>> tables_of_groups(int ranks, embedding::ReplicaMode replicas,
                                                 std::int64_t average_every) {
  std::vector<std::vector<float>> tables;
  dist::run_threads(ranks, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    train::RankingTrainOptions options = small_ranking_training();
    for (embedding::TableOptions& table : options.tables) {
      table.optimiser = embedding::SparseOptimiser::kSgd;
    }
    options.table.rate = 1;
    options.ranks = {.topology = dist::make_topology(world.nodes(), 1),
                     .replicas = replicas,
                     .average_every = average_every};
    train::RankingTrainer<float> step(ctx, world, options);
    step.initialise(ctx);
    for (int s = 0; s < kSteps; ++s) {
      OwnedRankingBatch batch = own_batch(s, world.rank());
      step.run(ctx, batch.view());
    }
    step.rows().settle(ctx);
    for (std::size_t t = 0; t < options.tables.size() && world.rank() == 0; ++t) {
      tables.push_back(test::values_of(step.rows().shard(t))[0]);
    }
  });
  return tables;
}

// A step of SGD is linear in the gradient: the mean of groups' own steps is the step of all.
TEST(RankingStep, AveragedReplicasOfAllTablesAreExactOnesUnderSgd) {
  const auto exact = tables_of_groups(3, embedding::ReplicaMode::kExact, 1);
  const auto averaged = tables_of_groups(3, embedding::ReplicaMode::kAverage, 1);
  const auto rarely = tables_of_groups(3, embedding::ReplicaMode::kAverage, 100);
  ASSERT_EQ(exact.size(), 3u);
  for (std::size_t t = 0; t < exact.size(); ++t) {
    expect_near(exact[t], averaged[t], 2e-6, "table " + std::to_string(t));
    double apart = 0;  // those that met at the end alone
    for (std::size_t i = 0; i < exact[t].size(); ++i) {
      apart = std::max(apart, std::abs(static_cast<double>(exact[t][i]) - rarely[t][i]));
    }
    EXPECT_GT(apart, 1e-4) << "table " << t << " would pass without a mean a step";
  }
}

TEST(RankingStep, AveragedReplicasSettleOnTheirMeanInEveryTable) {
  dist::run_threads(3, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    train::RankingTrainOptions options = small_ranking_training();
    options.ranks = {.topology = dist::make_topology(world.nodes(), 1),
                     .replicas = embedding::ReplicaMode::kAverage,
                     .average_every = 100};
    train::RankingTrainer<float> step(ctx, world, options);
    step.initialise(ctx);
    for (int s = 0; s < 3; ++s) {
      OwnedRankingBatch batch = ranking_share(s, world.rank(), world.size());
      step.run(ctx, batch.view());
    }
    test::expect_settles_on_mean(ctx, world, step.rows(), options.tables.size());
  });
}

TEST(RankingStep, RatesMayFall) {
  train::RankingTrainOptions options = small_ranking_training();
  options.schedule.kind = optim::ScheduleKind::kLinear;
  options.schedule.total_steps = kSteps;
  const Outcome outcome = train_alone<float>(options);
  const double base = options.dense.rate;
  EXPECT_EQ(outcome.results[1].rate, base / 2);
  EXPECT_EQ(outcome.results[2].rate, base);
  EXPECT_EQ(outcome.results[4].rate, base / 2);
}

TEST_P(RankingStepOf, OneThreadOrSeveralAreTheSameBits) {
  const Outcome one = train_alone<float>(small_ranking_training(GetParam()));
  const Outcome several = train_alone<float>(small_ranking_training(GetParam()), 3);
  EXPECT_TRUE(one.dense == several.dense);
  EXPECT_TRUE(one.tables == several.tables);
  EXPECT_TRUE(one.accumulators == several.accumulators);
  for (std::size_t s = 0; s < one.results.size(); ++s) {
    EXPECT_EQ(one.results[s].loss, several.results[s].loss) << s;
  }
}

TEST(RankingStep, TaskWeightsAreFactorsOnTheirLosses) {
  train::RankingTrainOptions doubled = small_ranking_training(), weighted = doubled,
                             other = doubled;
  doubled.loss_scale *= 2;
  weighted.task_weights = {2, 2};
  other.task_weights = {2, 1};
  const Outcome a = train_alone<float>(doubled), b = train_alone<float>(weighted);
  EXPECT_EQ(a.results[0].loss, b.results[0].loss);
  EXPECT_EQ(a.dense, b.dense);
  EXPECT_EQ(a.tables, b.tables);
  const double less = train_alone<float>(other).results[0].loss;
  EXPECT_LT(less, a.results[0].loss);
  EXPECT_GT(less, a.results[0].loss / 2);
}

template <class T>
void expect_learns(model::ModelKind kind) {
  train::RankingTrainOptions options = small_ranking_training(kind);
  options.dense.epsilon = options.table.epsilon = 1e-8;
  options.model.input_dropout = options.model.dropout = 0;
  const Outcome outcome = train_alone<T>(options, 2, 20, 2);
  const auto mean = [&](std::size_t first) {
    return (outcome.results[first].loss + outcome.results[first + 1].loss) / 2;
  };
  EXPECT_LT(mean(18), 0.3 * mean(0));
}
TEST_P(RankingStepOf, Learns) { expect_learns<float>(GetParam()); }
TEST_P(RankingStepOf, LearnsInBf16) { expect_learns<bf16>(GetParam()); }

// Labels, actions of targets, and other targets of the same sequence.
TEST_P(RankingStepOf, LabelsAndOtherTargetsAreNeverSeen) {
  const train::RankingTrainOptions options = small_ranking_training(GetParam());
  const Context ctx({.threads = 1});
  const auto logits_of = [&](auto change, double* loss = nullptr) {
    const auto alone = dist::make_self();
    train::RankingTrainer<float> step(ctx, *alone, options);
    step.initialise(ctx);
    OwnedRankingBatch batch = ranking_share(0, 0, 1);
    change(batch);
    const train::RankingResult result = step.run(ctx, batch.view());
    if (loss != nullptr) *loss = result.loss;
    const Rows<const float> logits = step.logits();
    return std::vector<float>(logits.data, logits.data + logits.rows * logits.cols);
  };
  OwnedRankingBatch batch = ranking_share(0, 0, 1);
  double loss = 0, other_loss = 0;
  const std::vector<float> wanted = logits_of([](OwnedRankingBatch&) {}, &loss);
  EXPECT_EQ(logits_of([](OwnedRankingBatch& other) { other.labels[0] = 1 - other.labels[0]; },
                      &other_loss),
            wanted);
  EXPECT_NE(loss, other_loss);
  std::int64_t target = 0, tried = 0;
  for (std::size_t b = 0; b < batch.num_targets.size(); ++b) {
    const std::int64_t targets = batch.num_targets[b];
    // Its last event: tokens without the prefixes.
    const auto last = static_cast<std::size_t>(batch.offsets[b + 1]) - 2 * (b + 1) - 1;
    target += targets;
    EXPECT_EQ(logits_of([&](OwnedRankingBatch& other) { other.actions[last] ^= 3; }), wanted) << b;
    if (targets < 2) continue;
    ++tried;
    const std::vector<float> got = logits_of(
        [&](OwnedRankingBatch& other) { other.ids[2][last] = (other.ids[2][last] + 7) % kItems; });
    for (std::int64_t t = 0; t < std::ssize(wanted) / 2; ++t) {
      const auto at = static_cast<std::size_t>(2 * t);
      EXPECT_EQ(got[at] == wanted[at] && got[at + 1] == wanted[at + 1], t != target - 1)
          << "sequence " << b << ", target " << t;
    }
  }
  EXPECT_GT(tried, 2);
}

// What makes a step bad: its loss, or one row's gradient alone.
enum class Bad { kLoss, kRowGradient };

// The bad step is the second of three, so that in schedules with several in flight it has
// neighbours.
void expect_a_bad_step_changes_nothing(StepSchedule schedule, Bad kind) {
  dist::run_threads(2, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    train::RankingTrainOptions options = small_ranking_training();
    options.ranks.topology = dist::make_topology(world.nodes(), 2);
    options.ranks.schedule = schedule;
    // A tag that good steps do not have, its row so small that factors as large as numbers can be
    // leave it ordinary: what overflows is the gradient of the row, and nothing else.
    options.task_weights = {1e6, 1e6};
    const std::int64_t small_tag = options.features.table_rows[2]++;
    options.tables[2].rows = options.features.table_rows[2];
    options.tables[2].start = 1e-38;
    const auto trained = [&](const std::vector<bool>& bad) {
      train::RankingTrainer<float> step(ctx, world, options);
      step.initialise(ctx);
      step.set_steps_done(10);
      std::vector<train::RankingResult> results;
      for (std::size_t s = 0; s < bad.size(); ++s) {
        OwnedRankingBatch batch = ranking_share(0, world.rank(), 2);
        const model::RankingBatch view = batch.view();
        model::FeatureIds& tags = batch.features[3];
        const std::vector<float> factors(static_cast<std::size_t>(tags.ids.shape[0]), 3e38F);
        if (bad[s] && world.rank() == 1 && kind == Bad::kLoss) {
          batch.labels[0] = std::numeric_limits<float>::quiet_NaN();
        } else if (bad[s] && world.rank() == 1) {
          std::fill(batch.ids[3].begin(), batch.ids[3].end(), small_tag);
          tags.weights = data::view_of(factors);
        }
        step.submit(ctx, view);
        if (step.pending() == step.queue_length()) results.push_back(step.finish(ctx));
      }
      while (step.pending() > 0) results.push_back(step.finish(ctx));
      for (std::size_t s = 0; s < bad.size(); ++s) {
        EXPECT_EQ(results[s].finite, !bad[s]) << s;
        EXPECT_EQ(results[s].rate == 0, bad[s]) << s;
        EXPECT_EQ(std::isfinite(results[s].loss), !bad[s] || kind == Bad::kRowGradient) << s;
      }
      embedding::RowSource<float>& rows = step.rows();
      return std::pair{dense_of(step), test::whole_of(ctx, rows, rows.shard(0).weight_tensor())};
    };
    const auto start = trained({}), after_bad = trained({true}), after_good = trained({false});
    EXPECT_EQ(after_bad, start);
    EXPECT_NE(after_good.first, start.first);
    EXPECT_NE(after_good.second, start.second);
    const auto between = trained({false, true, false});
    for (const float value : between.first) EXPECT_TRUE(std::isfinite(value));
    for (const float value : between.second) EXPECT_TRUE(std::isfinite(value));
    EXPECT_EQ(trained({false, true}), after_good);
  });
}

TEST(RankingStep, ABadNumberChangesNothing) {
  for (const StepSchedule schedule : {StepSchedule::kSerial, StepSchedule::kOverlap,
                                      StepSchedule::kExactPrefetch, StepSchedule::kSemiAsync}) {
    for (const Bad kind : {Bad::kLoss, Bad::kRowGradient}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(schedule) << static_cast<int>(kind));
      expect_a_bad_step_changes_nothing(schedule, kind);
    }
  }
}

TEST(RankingStep, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  const auto alone = dist::make_self();
  const auto refusal = [&](auto change) {
    train::RankingTrainOptions options = small_ranking_training();
    change(options);
    return message_of([&] { train::RankingTrainer<float>(ctx, *alone, options); });
  };
  EXPECT_EQ(refusal([](train::RankingTrainOptions&) {}), "");
  EXPECT_EQ(refusal([](train::RankingTrainOptions& o) { o.features.table_rows[1] = 99; }),
            "table 1 is [12, 6]; its features want [99, 6]");
  EXPECT_EQ(refusal([](train::RankingTrainOptions& o) { o.features.items.pop_back(); }),
            "2 prefix and 1 item features for a model of 2 and 2");
  EXPECT_NE(message_of([&] {
              dist::run_threads(2, [&](dist::Communicator& world) {
                const Context own({.threads = 1});
                train::RankingTrainer<float>(own, world, small_ranking_training());
              });
            }).find("tables that one rank holds for 2 ranks"),
            std::string::npos);
  train::RankingTrainer<float> step(ctx, *alone, small_ranking_training());
  OwnedRankingBatch none = ranking_share(0, static_cast<int>(kSequences), 1);
  EXPECT_EQ(message_of([&] { step.run(ctx, none.view()); }),
            "a step without targets on any rank; the batches are empty");
}

}  // namespace
}  // namespace turbogr::train
