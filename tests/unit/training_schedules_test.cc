// Training over thread ranks against training on one: the same losses and weights up to the order
// of sums, for every layout; the same bits for schedules that promise them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/rank_batches.h"
#include "tests/support/whole_table.h"
#include "turbogr/core/background_worker.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/run/run_options.h"
#include "turbogr/train/dense_reducer.h"
#include "turbogr/train/schedules.h"

namespace turbogr::train {
namespace {

using test::message_of;
using test::share_of;
using test::StepShape;

constexpr StepShape kShape;
constexpr int kSteps = 6;

RetrievalOptions options_of(model::ModelKind kind = model::ModelKind::kHstu) {
  RetrievalOptions options;
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
std::vector<data::Batch> batches_of(int step, int rank, int ranks) {
  return {share_of(kShape, 2 * step, rank, ranks), share_of(kShape, 2 * step + 1, rank, ranks)};
}

struct Outcome {
  std::vector<StepResult> results;
  std::vector<float> weights;  // the table, then the dense parameters
};

template <class T>
std::vector<float> weights_of(const Context& ctx, RetrievalTrainer<T>& trainer) {
  trainer.rows().settle(ctx);
  std::vector<float> all = test::whole_of(ctx, trainer.rows(), trainer.table().weight_tensor());
  for (const NamedTensor& tensor : trainer.model_tensors()) {
    const auto* values = reinterpret_cast<const float*>(tensor.data);
    all.insert(all.end(), values, values + tensor.bytes() / sizeof(float));
  }
  return all;
}

// Of targets in an imagined epoch.
std::vector<std::int64_t> counts_of(const RetrievalOptions& options,
                                    std::int64_t items = kShape.items) {
  std::vector<std::int64_t> counts;
  if (options.negatives.kind == NegativeKind::kUniform) return counts;
  for (std::int64_t item = 0; item < items; ++item) counts.push_back(item % 7);
  return counts;
}

template <class T>
Outcome train_alone(const RetrievalOptions& options) {
  const Context ctx({.threads = 1});
  RetrievalTrainer<T> trainer(ctx, options, kShape.items, counts_of(options));
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
Outcome train_on_ranks(const RetrievalOptions& given, const Layout& layout, RankOptions options,
                       int drain_at = -1, std::int64_t items = kShape.items) {
  Outcome outcome;
  std::mutex mutex;
  dist::run_threads(layout.ranks, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    RetrievalOptions own = given;
    own.ranks = options;
    own.ranks.topology = dist::make_topology(world.nodes(), layout.group);
    RetrievalTrainer<T> trainer(ctx, world, own, items, counts_of(own, items));
    trainer.initialise(ctx);
    std::vector<StepResult> results;
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
        const StepResult &first = outcome.results[at], &other = results[at];
        TGR_CHECK(first.loss == other.loss || !(first.finite || other.finite),
                  "ranks differ in step ", step);
      }
    }
  });
  return outcome;
}

void expect_near(const Outcome& a, const Outcome& b, double tolerance, const std::string& what) {
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

void expect_equal(const Outcome& a, const Outcome& b, const std::string& what) {
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
RetrievalOptions smooth_options() {
  RetrievalOptions options = options_of();
  options.table_optimiser = embedding::SparseOptimiser::kSgd;
  options.dense.epsilon = 1e-2;
  return options;
}

TEST(Schedules, AnyLayoutIsOneRankUpToRounding) {
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

TEST(Schedules, TheSameForClippingFuxiSharedNegativesAndAdaGrad) {
  RetrievalOptions options = smooth_options();
  options.clip = 0.05;
  options.negatives.shared = true;
  options.table_optimiser = embedding::SparseOptimiser::kAdaGrad;
  options.table.epsilon = 1e-2;
  expect_near(train_alone<float>(options), train_on_ranks<float>(options, {2, 2}, {}), 2e-6,
              "clipped, shared");
  RetrievalOptions fuxi = options_of(model::ModelKind::kFuxi);
  fuxi.dense.epsilon = fuxi.table.epsilon = 1e-2;
  expect_near(train_alone<float>(fuxi), train_on_ranks<float>(fuxi, {3, 3}, {}), 2e-6, "fuxi");
}

TEST(Schedules, NegativesComeFromThePositivesOfAllRanks) {
  for (const NegativeKind kind : {NegativeKind::kInBatch, NegativeKind::kMixed}) {
    for (const bool shared : {false, true}) {
      RetrievalOptions options = smooth_options();
      options.negatives.kind = kind;
      if (kind == NegativeKind::kMixed) options.negatives.mix = {1, 1, 1};
      options.negatives.count = 9;
      options.negatives.shared = shared;
      const Outcome alone = train_alone<float>(options);
      for (const Layout layout : {Layout{2, 2}, {4, 2}, {12, 4}}) {
        expect_near(
            alone,
            train_on_ranks<float>(options, layout, {.schedule = StepSchedule::kExactPrefetch}),
            2e-6, "kind " + std::to_string(static_cast<int>(kind)));
      }
    }
  }
}

TEST(Schedules, TargetsAreCountedOverAllRanks) {
  RetrievalOptions options = smooth_options();
  options.parts = {.prefix = 2, .targets = 3};
  const Outcome alone = train_alone<float>(options);
  EXPECT_LT(alone.results[0].predicting, alone.results[0].tokens);
  for (const Layout layout : {Layout{1, 1}, {3, 3}, {4, 2}, {12, 4}}) {
    const Outcome many = train_on_ranks<float>(options, layout, {});
    expect_near(alone, many, 2e-6, std::to_string(layout.ranks) + " ranks");
    EXPECT_EQ(alone.results[0].predicting, many.results[0].predicting);
  }
}

TEST(Schedules, SchedulesThatPromiseItGiveTheSameBits) {
  for (const Layout layout : {Layout{1, 1}, {4, 2}}) {
    const RetrievalOptions options = options_of();
    const Outcome serial = train_on_ranks<float>(options, layout, {});
    expect_equal(serial, train_on_ranks<float>(options, layout, {}), "serial again");
    for (const StepSchedule schedule : {StepSchedule::kOverlap, StepSchedule::kExactPrefetch}) {
      expect_equal(serial, train_on_ranks<float>(options, layout, {.schedule = schedule}),
                   "schedule");
      expect_equal(
          serial,
          train_on_ranks<float>(options, layout, {.schedule = schedule, .bucket_bytes = 64}, 2),
          "schedule, small buckets, ended in the middle");
    }
    expect_equal(
        serial,
        train_on_ranks<float>(options, layout, {.schedule = StepSchedule::kSemiAsync, .delay = 0}),
        "semi_async without delay");
    expect_equal(serial,
                 train_on_ranks<float>(options, layout,
                                       {.schedule = StepSchedule::kSemiAsync, .warmup = 100}),
                 "semi_async that never ends its warm-up");
    RetrievalOptions clipped = options;
    clipped.clip = 0.05;
    expect_equal(train_on_ranks<float>(clipped, layout, {}),
                 train_on_ranks<float>(clipped, layout, {.schedule = StepSchedule::kExactPrefetch}),
                 "clipped");
  }
}

// Most rows of a step are not read by the next one: their gradients return while it computes.
TEST(Schedules, RowsThatWaitForNobodyChangeNoBit) {
  constexpr std::int64_t kItems = 3000;
  for (const Layout layout : {Layout{1, 1}, {2, 2}, {4, 2}, {3, 1}}) {
    const RetrievalOptions options = options_of();
    const Outcome serial = train_on_ranks<float>(options, layout, {}, -1, kItems);
    for (const int drain_at : {-1, 0, 2}) {
      expect_equal(
          serial,
          train_on_ranks<float>(options, layout, {.schedule = StepSchedule::kExactPrefetch},
                                drain_at, kItems),
          std::to_string(layout.ranks) + " ranks");
    }
  }
}

// A step of semi_async reads the rows without the update just before it: done by hand on one rank.
TEST(Schedules, SemiAsyncReadsRowsOneUpdateLate) {
  const RetrievalOptions options = options_of();
  const Context ctx({.threads = 1});
  const std::unique_ptr<dist::Communicator> alone = dist::make_self();
  RetrievalStep<float> stages(ctx, ctx, *alone, options, kShape.items, {});
  stages.initialise(ctx);
  StepRowMemory<float> memory[2] = {{ctx, options, kShape.items}, {ctx, options, kShape.items}};
  StepInFlight<float> steps[2] = {{ctx, options, kShape.items, stages.rows()},
                                  {ctx, options, kShape.items, stages.rows()}};
  const auto read = [&](int number) {
    StepInFlight<float>& step = steps[number % 2];
    step.memory = &memory[number % 2];
    step.step = number;
    step.kept = batches_of(number, 0, 1);
    step.batches = step.kept;
    step.tokens = step.predicting = step.kept[0].num_tokens() + step.kept[1].num_tokens();
    stages.prepare(ctx, Lane::kThis, step);
    stages.fetch(ctx, Lane::kThis, step);
  };
  std::vector<double> losses;
  read(0);
  for (int number = 0; number < kSteps; ++number) {
    if (number + 1 < kSteps) read(number + 1);  // before this step's update
    StepInFlight<float>& step = steps[number % 2];
    stages.compute(ctx, step);
    stages.return_rows(ctx, Lane::kThis, step, Part::kAll);
    stages.update_dense(ctx, step);
    stages.update_rows(ctx, Lane::kThis, step, Part::kAll);
    stages.finish(ctx, step);
    losses.push_back(RetrievalStep<float>::result_of(step).loss);
  }
  const embedding::ItemTable& table = stages.rows().shard(0);
  const Outcome late =
      train_on_ranks<float>(options, {1, 1}, {.schedule = StepSchedule::kSemiAsync});
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_EQ(late.results[static_cast<std::size_t>(step)].loss,
              losses[static_cast<std::size_t>(step)])
        << step;
  }
  for (std::int64_t i = 0; i < table.rows() * table.width(); ++i) {
    EXPECT_EQ(late.weights[static_cast<std::size_t>(i)], table.weights().data[i]) << i;
  }
  // And it is not the same as serial, nor far from it.
  const Outcome serial = train_on_ranks<float>(options, {1, 1}, {});
  EXPECT_FALSE(serial.weights == late.weights);
  EXPECT_NEAR(serial.results.back().loss, late.results.back().loss, 0.1);
  // Over ranks it is the same up to rounding; clipping has the rows returned earlier, not used.
  RetrievalOptions smooth = smooth_options();
  expect_near(train_on_ranks<float>(smooth, {1, 1}, {.schedule = StepSchedule::kSemiAsync}),
              train_on_ranks<float>(smooth, {4, 2}, {.schedule = StepSchedule::kSemiAsync}), 2e-6,
              "semi_async on 4 ranks");
  smooth.clip = 1e6;
  expect_equal(
      train_on_ranks<float>(smooth_options(), {2, 2}, {.schedule = StepSchedule::kSemiAsync}),
      train_on_ranks<float>(smooth, {2, 2}, {.schedule = StepSchedule::kSemiAsync}),
      "a clip that never applies");
}

TEST(Schedules, TrainsInBf16WithRowsInBf16OnTheWire) {
  RetrievalOptions options = smooth_options();
  const Outcome wide = train_on_ranks<bf16>(options, {2, 2}, {});
  // The model rounds rows to bf16 anyway: rounding them before they travel changes nothing.
  expect_equal(wide, train_on_ranks<bf16>(options, {2, 2}, {.row_wire = DType::kBf16}),
               "bf16 wire");
  const Outcome alone = train_alone<bf16>(options);
  for (int step = 0; step < kSteps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    EXPECT_NEAR(alone.results[at].loss, wide.results[at].loss, 0.02);
  }
}

// Negatives read as f16 are those one rank rounds, whoever holds their rows.
TEST(Schedules, F16NegativesWorkOverRanks) {
  RetrievalOptions options = smooth_options();
  options.negatives.half = true;
  const Outcome alone = train_alone<float>(options);
  EXPECT_NE(alone.results[0].loss, train_alone<float>(smooth_options()).results[0].loss);
  for (const Layout layout : {Layout{2, 2}, {4, 2}, {3, 1}}) {
    const Outcome serial = train_on_ranks<float>(options, layout, {});
    expect_near(alone, serial, 1e-5, std::to_string(layout.ranks) + " ranks");
    expect_equal(serial,
                 train_on_ranks<float>(options, layout, {.schedule = StepSchedule::kExactPrefetch}),
                 "exact_prefetch");
    expect_equal(serial, train_on_ranks<float>(options, layout, {.device_rows = true}), "device");
  }
}

// Rows in bf16: exact schedules are still exact, ranks are one rank up to rounding, and the weights
// are bf16's.
TEST(Schedules, TablesInBf16Train) {
  RetrievalOptions options = smooth_options();
  options.table_dtype = DType::kBf16;
  const Outcome alone = train_alone<float>(options);
  const Outcome wide = train_alone<float>(smooth_options());
  for (const Layout layout : {Layout{2, 2}, {4, 2}}) {
    const Outcome serial = train_on_ranks<float>(options, layout, {});
    for (int step = 0; step < kSteps; ++step) {
      const auto at = static_cast<std::size_t>(step);
      EXPECT_NEAR(serial.results[at].loss, alone.results[at].loss, 1e-3);
      EXPECT_NEAR(serial.results[at].loss, wide.results[at].loss, 1e-2);
    }
    for (const StepSchedule schedule : {StepSchedule::kOverlap, StepSchedule::kExactPrefetch}) {
      expect_equal(serial, train_on_ranks<float>(options, layout, {.schedule = schedule}),
                   "schedule");
    }
    expect_equal(serial, train_on_ranks<float>(options, layout, {.device_rows = true}), "device");
  }
  EXPECT_NE(
      message_of([&] {
        train_on_ranks<float>(options, {2, 1}, {.replicas = embedding::ReplicaMode::kAverage});
      }).find("cannot be averaged"),
      std::string::npos);
}

TEST(Schedules, AveragedReplicasTrain) {
  RankOptions options = {.replicas = embedding::ReplicaMode::kAverage, .average_every = 2};
  const Outcome averaged = train_on_ranks<float>(smooth_options(), {4, 2}, options);
  const Outcome exact = train_on_ranks<float>(smooth_options(), {4, 2}, {});
  EXPECT_NEAR(averaged.results.back().loss, exact.results.back().loss, 0.1);
  options.schedule = StepSchedule::kSemiAsync;
  EXPECT_NE(message_of([&] {
              train_on_ranks<float>(smooth_options(), {2, 1}, options);
            }).find("averaged replicas"),
            std::string::npos);
}

// Between two means, too: a checkpoint and an evaluation hold what every group has learnt.
TEST(Schedules, AveragedReplicasSettleOnTheirMean) {
  constexpr int kRanks = 3;
  dist::run_threads(kRanks, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    RetrievalOptions options = options_of();
    options.ranks = {.topology = dist::make_topology(world.nodes(), 1),
                     .replicas = embedding::ReplicaMode::kAverage,
                     .average_every = 100};
    RetrievalTrainer<float> trainer(ctx, world, options, kShape.items);
    trainer.initialise(ctx);
    for (int step = 0; step < 3; ++step) {
      trainer.step(ctx, batches_of(step, world.rank(), world.size()));
    }
    const auto values_of = [](const Tensor& tensor) {
      const auto* values = reinterpret_cast<const float*>(tensor.data());
      return std::vector<float>(values, values + tensor.size());
    };
    const auto tensors_of = [](embedding::ItemTable& table) {
      return std::vector<Tensor*>{&table.weight_tensor(), &table.first_moment(),
                                  &table.second_moment()};
    };
    std::vector<std::vector<float>> own;  // a group of one holds all rows, in their order
    for (Tensor* tensor : tensors_of(trainer.table())) own.push_back(values_of(*tensor));
    trainer.rows().settle(ctx);
    for (std::size_t i = 0; i < own.size(); ++i) {
      std::vector<float> sum = own[i];
      world.all_reduce(sum, dist::Reduce::kSum);
      const std::vector<float> mean = values_of(*tensors_of(trainer.table())[i]);
      EXPECT_NE(mean, own[i]) << "the groups have learnt nothing of their own: nothing is tested";
      ASSERT_EQ(mean.size(), sum.size());
      for (std::size_t j = 0; j < sum.size(); ++j) {
        ASSERT_EQ(mean[j], sum[j] * (1.0f / kRanks)) << i << ' ' << j;
      }
    }
    // Once: a third of three equal numbers need not be one of them.
    const std::vector<float> before = values_of(trainer.table().weight_tensor());
    trainer.rows().settle(ctx);
    EXPECT_EQ(values_of(trainer.table().weight_tensor()), before);
  });
}

// What a GPU does, on a CPU: rows gathered, sent and summed by operators, every buffer staged.
TEST(Schedules, MovingRowsByTheDeviceChangesNoBit) {
  RetrievalOptions clipped = options_of();
  clipped.clip = 0.05;
  for (const Layout layout : {Layout{1, 1}, {2, 2}, {4, 2}, {12, 4}}) {
    for (const StepSchedule schedule : {StepSchedule::kSerial, StepSchedule::kOverlap,
                                        StepSchedule::kExactPrefetch, StepSchedule::kSemiAsync}) {
      for (const RetrievalOptions& options : {options_of(), clipped}) {
        expect_equal(
            train_on_ranks<float>(options, layout, {.schedule = schedule}),
            train_on_ranks<float>(options, layout, {.schedule = schedule, .device_rows = true}),
            std::to_string(layout.ranks) + " ranks, schedule " +
                std::to_string(static_cast<int>(schedule)));
      }
    }
  }
  for (const DType rows : {DType::kF32, DType::kBf16}) {
    RankOptions wire = {
        .schedule = StepSchedule::kExactPrefetch, .row_wire = rows, .gradient_wire = DType::kBf16};
    RankOptions by_device = wire;
    by_device.device_rows = true;
    expect_equal(train_on_ranks<float>(options_of(), {4, 2}, wire),
                 train_on_ranks<float>(options_of(), {4, 2}, by_device), "bf16 on the wire");
    expect_equal(train_on_ranks<bf16>(options_of(), {3, 3}, wire),
                 train_on_ranks<bf16>(options_of(), {3, 3}, by_device), "bf16 model");
  }
  RankOptions average = {.replicas = embedding::ReplicaMode::kAverage, .average_every = 2};
  RankOptions by_device = average;
  by_device.device_rows = true;
  RetrievalOptions adagrad = options_of();
  adagrad.table_optimiser = embedding::SparseOptimiser::kAdaGrad;
  expect_equal(train_on_ranks<float>(adagrad, {4, 2}, average),
               train_on_ranks<float>(adagrad, {4, 2}, by_device), "averaged replicas");
  EXPECT_NE(
      message_of([&] {
        train_on_ranks<float>(options_of(), {2, 2}, {.row_wire = DType::kF16, .device_rows = true});
      }).find("cannot travel as f16"),
      std::string::npos);
}

TEST(Schedules, ABadNumberIsSkippedOnAllRanksAndChangesNothing) {
  RetrievalOptions options = options_of();
  options.temperature = 1e-300;  // logits overflow
  const Context ctx({.threads = 1});
  RetrievalTrainer<float> untrained(ctx, options, kShape.items);
  untrained.initialise(ctx);
  const std::vector<float> fresh = weights_of(ctx, untrained);
  for (const StepSchedule schedule : {StepSchedule::kSerial, StepSchedule::kOverlap,
                                      StepSchedule::kExactPrefetch, StepSchedule::kSemiAsync}) {
    const Outcome bad = train_on_ranks<float>(options, {2, 2}, {.schedule = schedule});
    EXPECT_FALSE(bad.results[0].finite);
    EXPECT_EQ(bad.results[0].rate, 0);
    EXPECT_TRUE(bad.weights == fresh) << static_cast<int>(schedule);
  }
}

TEST(Schedules, AWishToStopReachesEverybody) {
  dist::run_threads(3, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    RetrievalOptions options = options_of();
    options.ranks = {.schedule = StepSchedule::kExactPrefetch,
                     .topology = dist::make_topology(world.nodes(), 3)};
    RetrievalTrainer<float> trainer(ctx, world, options, kShape.items);
    trainer.initialise(ctx);
    int steps = 0;
    while (!trainer.stop_asked()) {
      const auto batches = batches_of(steps, world.rank(), world.size());
      trainer.submit(ctx, batches, world.rank() == 1 && steps == 2);
      ++steps;
      while (trainer.pending() > 1) trainer.finish(ctx);
    }
    EXPECT_EQ(steps, 4);  // known when the step that carried it is computed
    while (trainer.pending() > 0) trainer.finish(ctx);
    EXPECT_EQ(trainer.table().rows(), trainer.rows().sharding(0).rows_of(world.rank()));
  });
}

TEST(Schedules, SaysWhatIsWrong) {
  EXPECT_NE(
      message_of([] { step_schedule_from_name("later"); }).find("exact_prefetch or semi_async"),
      std::string::npos);
  EXPECT_EQ(step_schedule_from_name("overlap"), StepSchedule::kOverlap);
  EXPECT_NE(message_of([] {
              train_on_ranks<float>(options_of(), {1, 1}, {.delay = 2});
            }).find("a delay of 2"),
            std::string::npos);
}

TEST(Schedules, AConfigAsksForWhatRanksCanDo) {
  const auto refusal = [](auto change) {
    Config config;
    change(config);
    return message_of([&] { rank_options(config, {0, 0}); });
  };
  EXPECT_EQ(refusal([](Config&) {}), "");
  EXPECT_NE(refusal([](Config& config) {
              config.negatives.dtype = "f16";
              config.negatives.half_table = true;
            }).find("a table that one rank holds"),
            std::string::npos);
  const auto half_rows = [](Config& config) {
    config.train.device = "cuda";
    config.dist.rows = "f16";
  };
  EXPECT_NE(refusal(half_rows).find("GPUs send rows as f32 or bf16"), std::string::npos);
  Config config;
  config.train.device = "cuda";
  config.dist.timeout = 7;
  EXPECT_EQ(rank_options(config, {0, 0}).wait.timeout_seconds, 7);
}

TEST(DenseReducer, SumsBucketsAsTheyFill) {
  for (const std::int64_t bucket_bytes : {1, 40, 1 << 20}) {
    dist::run_threads(3, [&](dist::Communicator& world) {
      const Context ctx({.threads = 1});
      std::vector<std::vector<float>> gradients = {std::vector<float>(7), std::vector<float>(1),
                                                   std::vector<float>(20), std::vector<float>(3)};
      std::vector<GradientBlock> blocks;
      for (auto& each : gradients) {
        blocks.push_back({each.data(), static_cast<std::int64_t>(each.size())});
      }
      DenseReducer reducer(ctx, world, blocks, bucket_bytes);
      EXPECT_EQ(reducer.num_buckets(), bucket_bytes == 1 ? 4u : bucket_bytes == 40 ? 2u : 1u);
      for (int round = 0; round < 2; ++round) {
        for (auto& each : gradients) {
          std::fill(each.begin(), each.end(), static_cast<float>(world.rank() + round));
        }
        reducer.ready(2);
        reducer.finish();
        for (const auto& each : gradients) {
          EXPECT_EQ(each, std::vector<float>(each.size(), static_cast<float>(3 + 3 * round)));
        }
      }
    });
  }
}

TEST(BackgroundWorker, WorksBesideAndHandsErrorsBack) {
  BackgroundWorker worker;
  int done = 0;
  worker.start([&] { done = 1; });
  worker.join();
  EXPECT_EQ(done, 1);
  worker.start([] { throw Error("no rows"); });
  EXPECT_EQ(message_of([&] { worker.join(); }), "no rows");
  worker.start([&] { done = 2; });
  worker.join();
  EXPECT_EQ(done, 2);
}

}  // namespace
}  // namespace turbogr::train
