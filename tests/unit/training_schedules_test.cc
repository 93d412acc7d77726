// Schedules over thread ranks: the same bits where they promise them, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/rank_training.h"
#include "turbogr/run/run_options.h"

namespace turbogr::train {
namespace {

using test::message_of;
using test::share_of;

TEST(Schedules, SchedulesThatPromiseItGiveTheSameBits) {
  for (const Layout layout : {Layout{1, 1}, {4, 2}}) {
    const train::RetrievalOptions options = options_of();
    const Outcome serial = train_on_ranks<float>(options, layout, {});
    expect_equal(serial, train_on_ranks<float>(options, layout, {}), "serial again");
    for (const train::StepSchedule schedule :
         {train::StepSchedule::kOverlap, train::StepSchedule::kExactPrefetch}) {
      expect_equal(serial, train_on_ranks<float>(options, layout, {.schedule = schedule}),
                   "schedule");
      expect_equal(
          serial,
          train_on_ranks<float>(options, layout, {.schedule = schedule, .bucket_bytes = 64}, 2),
          "schedule, small buckets, ended in the middle");
    }
    expect_equal(serial,
                 train_on_ranks<float>(options, layout,
                                       {.schedule = train::StepSchedule::kSemiAsync, .delay = 0}),
                 "semi_async without delay");
    expect_equal(serial,
                 train_on_ranks<float>(
                     options, layout, {.schedule = train::StepSchedule::kSemiAsync, .warmup = 100}),
                 "semi_async that never ends its warm-up");
    train::RetrievalOptions clipped = options;
    clipped.clip = 0.05;
    expect_equal(
        train_on_ranks<float>(clipped, layout, {}),
        train_on_ranks<float>(clipped, layout, {.schedule = train::StepSchedule::kExactPrefetch}),
        "clipped");
  }
}

// Most rows of a step are not read by the next one: their gradients return while it computes.
TEST(Schedules, RowsThatWaitForNobodyChangeNoBit) {
  constexpr std::int64_t kItems = 3000;
  for (const Layout layout : {Layout{1, 1}, {2, 2}, {4, 2}, {3, 1}}) {
    const train::RetrievalOptions options = options_of();
    const Outcome serial = train_on_ranks<float>(options, layout, {}, -1, kItems);
    for (const int drain_at : {-1, 0, 2}) {
      expect_equal(
          serial,
          train_on_ranks<float>(options, layout, {.schedule = train::StepSchedule::kExactPrefetch},
                                drain_at, kItems),
          std::to_string(layout.ranks) + " ranks");
    }
  }
}

// A step of semi_async reads the rows without the update just before it: done by hand on one rank.
TEST(Schedules, SemiAsyncReadsRowsOneUpdateLate) {
  const train::RetrievalOptions options = options_of();
  const Context ctx({.threads = 1});
  const std::unique_ptr<dist::Communicator> alone = dist::make_self();
  train::RetrievalStep<float> stages(ctx, ctx, *alone, options, kShape.items, {});
  stages.initialise(ctx);
  train::StepRowMemory<float> memory[2] = {{ctx, options, kShape.items},
                                           {ctx, options, kShape.items}};
  train::StepInFlight<float> steps[2] = {{ctx, options, kShape.items, stages.rows()},
                                         {ctx, options, kShape.items, stages.rows()}};
  const auto read = [&](int number) {
    train::StepInFlight<float>& step = steps[number % 2];
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
    train::StepInFlight<float>& step = steps[number % 2];
    stages.compute(ctx, step);
    stages.return_rows(ctx, Lane::kThis, step, Part::kAll);
    stages.update_dense(ctx, step);
    stages.update_rows(ctx, Lane::kThis, step, Part::kAll);
    stages.finish(ctx, step);
    losses.push_back(train::RetrievalStep<float>::result_of(step).loss);
  }
  const embedding::ItemTable& table = stages.rows().shard(0);
  const Outcome late =
      train_on_ranks<float>(options, {1, 1}, {.schedule = train::StepSchedule::kSemiAsync});
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_EQ(late.results[static_cast<std::size_t>(step)].loss,
              losses[static_cast<std::size_t>(step)])
        << step;
  }
  for (std::int64_t i = 0; i < table.rows() * table.width(); ++i) {
    EXPECT_EQ(late.weights[static_cast<std::size_t>(i)], table.weights().data[i]) << i;
  }
  // And it is not the same as serial: that begins with the same step, and the next one has read
  // rows from before the first one's update.
  const Outcome serial = train_on_ranks<float>(options, {1, 1}, {});
  EXPECT_EQ(serial.results[0].loss, late.results[0].loss);
  for (std::size_t step = 1; step < serial.results.size(); ++step) {
    EXPECT_NE(serial.results[step].loss, late.results[step].loss) << step;
  }
  EXPECT_FALSE(serial.weights == late.weights);
  // Over ranks it is the same up to rounding; clipping has the rows returned earlier, not used.
  train::RetrievalOptions smooth = smooth_options();
  expect_near(train_on_ranks<float>(smooth, {1, 1}, {.schedule = train::StepSchedule::kSemiAsync}),
              train_on_ranks<float>(smooth, {4, 2}, {.schedule = train::StepSchedule::kSemiAsync}),
              2e-6, "semi_async on 4 ranks");
  smooth.clip = 1e6;
  expect_equal(train_on_ranks<float>(smooth_options(), {2, 2},
                                     {.schedule = train::StepSchedule::kSemiAsync}),
               train_on_ranks<float>(smooth, {2, 2}, {.schedule = train::StepSchedule::kSemiAsync}),
               "a clip that never applies");
}

// What a GPU does, on a CPU: every message of rows goes through another buffer.
TEST(Schedules, MovingRowsByTheDeviceChangesNoBit) {
  train::RetrievalOptions clipped = options_of();
  clipped.clip = 0.05;
  for (const Layout layout : {Layout{1, 1}, {2, 2}, {4, 2}, {12, 4}}) {
    for (const train::StepSchedule schedule :
         {train::StepSchedule::kSerial, train::StepSchedule::kOverlap,
          train::StepSchedule::kExactPrefetch, train::StepSchedule::kSemiAsync}) {
      for (const train::RetrievalOptions& options : {options_of(), clipped}) {
        expect_equal(
            train_on_ranks<float>(options, layout, {.schedule = schedule}),
            train_on_ranks<float>(options, layout, {.schedule = schedule, .device_rows = true}),
            std::to_string(layout.ranks) + " ranks, schedule " +
                std::to_string(static_cast<int>(schedule)));
      }
    }
  }
  for (const DType rows : {DType::kF32, DType::kBf16, DType::kF16}) {
    train::RankOptions wire = {.schedule = train::StepSchedule::kExactPrefetch,
                               .row_wire = rows,
                               .gradient_wire = DType::kBf16};
    train::RankOptions by_device = wire;
    by_device.device_rows = true;
    expect_equal(train_on_ranks<float>(options_of(), {4, 2}, wire),
                 train_on_ranks<float>(options_of(), {4, 2}, by_device), "bf16 on the wire");
    expect_equal(train_on_ranks<bf16>(options_of(), {3, 3}, wire),
                 train_on_ranks<bf16>(options_of(), {3, 3}, by_device), "bf16 model");
  }
  train::RankOptions average = {.replicas = embedding::ReplicaMode::kAverage, .average_every = 2};
  train::RankOptions by_device = average;
  by_device.device_rows = true;
  train::RetrievalOptions adagrad = options_of();
  adagrad.table_optimiser = embedding::SparseOptimiser::kAdaGrad;
  expect_equal(train_on_ranks<float>(adagrad, {4, 2}, average),
               train_on_ranks<float>(adagrad, {4, 2}, by_device), "averaged replicas");
}

void expect_bad_steps_change_nothing(const train::RetrievalOptions& options, bool finite_loss) {
  const Context ctx({.threads = 1});
  train::RetrievalTrainer<float> untrained(ctx, options, kShape.items);
  untrained.initialise(ctx);
  const std::vector<float> fresh = weights_of(ctx, untrained);
  for (const train::StepSchedule schedule :
       {train::StepSchedule::kSerial, train::StepSchedule::kOverlap,
        train::StepSchedule::kExactPrefetch, train::StepSchedule::kSemiAsync}) {
    const Outcome bad = train_on_ranks<float>(options, {2, 2}, {.schedule = schedule});
    EXPECT_FALSE(bad.results[0].finite);
    EXPECT_EQ(std::isfinite(bad.results[0].loss), finite_loss);
    EXPECT_EQ(bad.results[0].rate, 0);
    EXPECT_TRUE(bad.weights == fresh) << static_cast<int>(schedule);
  }
}

TEST(Schedules, ABadNumberIsSkippedOnAllRanksAndChangesNothing) {
  train::RetrievalOptions options = options_of();
  options.temperature = 1e-300;  // logits overflow
  expect_bad_steps_change_nothing(options, false);
}

// Items shorter than the least length they are divided by: their logits are ordinary, and so are
// the gradients of dense weights. Gradients of the items are 1 / (1e-6 * temperature) as large.
TEST(Schedules, ABadGradientOfARowAloneChangesNothingEither) {
  train::RetrievalOptions options = options_of();
  options.table_start = 1e-38;
  options.temperature = 1e-32;
  expect_bad_steps_change_nothing(options, true);
}

TEST(Schedules, AWishToStopReachesEverybody) {
  dist::run_threads(3, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    train::RetrievalOptions options = options_of();
    options.ranks = {.schedule = train::StepSchedule::kExactPrefetch,
                     .topology = dist::make_topology(world.nodes(), 3)};
    train::RetrievalTrainer<float> trainer(ctx, world, options, kShape.items);
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
  EXPECT_NE(message_of([] {
              train::step_schedule_from_name("later");
            }).find("exact_prefetch or semi_async"),
            std::string::npos);
  EXPECT_EQ(train::step_schedule_from_name("overlap"), train::StepSchedule::kOverlap);
  EXPECT_NE(message_of([] {
              train_on_ranks<float>(options_of(), {1, 1}, {.delay = 2});
            }).find("a delay of 2"),
            std::string::npos);
}

TEST(Schedules, AConfigAsksForWhatRanksCanDo) {
  const auto refusal = [](auto change) {
    run::Config config;
    change(config);
    return message_of([&] { run::rank_options(config, {0, 0}); });
  };
  EXPECT_EQ(refusal([](run::Config&) {}), "");
  EXPECT_NE(refusal([](run::Config& config) {
              config.negatives.dtype = "f16";
              config.negatives.half_table = true;
            }).find("a table that one rank holds"),
            std::string::npos);
  const auto half_rows = [](run::Config& config) {
    config.train.device = "cuda";
    config.dist.rows = "f16";
  };
  EXPECT_NE(refusal(half_rows).find("GPUs send rows as f32 or bf16"), std::string::npos);
  run::Config config;
  config.train.device = "cuda";
  config.dist.timeout = 7;
  EXPECT_EQ(run::rank_options(config, {0, 0}).wait.timeout_seconds, 7);
}

}  // namespace
}  // namespace turbogr::train
