// The watchdog names a rank that is slow, and in what.
#include "turbogr/run/watchdog.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/rank_batches.h"
#include "turbogr/core/trace.h"
#include "turbogr/dist/topology.h"
#include "turbogr/train/schedules.h"

namespace turbogr::run {
namespace {

using test::has;

std::size_t place_of(const train::Stage& stage) {
  for (std::size_t i = 0; i < train::kStages.size(); ++i) {
    if (std::string(train::kStages[i].name) == stage.name) return i;
  }
  return train::kStages.size();
}

TEST(Watchdog, TellsTheSlowRankFromThoseThatWaitForIt) {
  std::vector<RankTimes> ranks(4);
  for (RankTimes& times : ranks) {
    times.seconds = 10;
    times.by_stage[place_of(train::stages::kCompute)] = 6;
    times.by_stage[place_of(train::stages::kDenseSums)] = 3;
  }
  EXPECT_LT(slowest_of(ranks).excess(), 1e-9);
  ranks[2].by_stage[place_of(train::stages::kCompute)] = 8.5;
  ranks[2].by_stage[place_of(train::stages::kDenseSums)] = 0.5;
  const SlowRank computing = slowest_of(ranks);
  EXPECT_EQ(computing.rank, 2);
  EXPECT_EQ(computing.stage, train::stages::kCompute.name);
  EXPECT_NEAR(computing.excess(), 9.5 / 7 - 1, 1e-9);
  EXPECT_TRUE(has(text_of(computing), "rank 2 is the slowest, 36 %"));
  ranks[1].by_stage[place_of(train::stages::kDenseSums)] = 0;  // nothing accounts for its time
  ranks[2] = ranks[0];
  const SlowRank reading = slowest_of(ranks);
  EXPECT_EQ(reading.rank, 1);
  EXPECT_TRUE(has(reading.stage, "reading"));
}

// Rank 2 has four times the work of the others.
TEST(Watchdog, NamesASlowedRankWithinTwentySteps) {
  constexpr int kRanks = 3;
  const std::vector<int> nodes(kRanks, 0);
  for (const train::StepSchedule schedule :
       {train::StepSchedule::kSerial, train::StepSchedule::kExactPrefetch}) {
    std::optional<SlowRank> named;
    std::int64_t named_at = 0;
    dist::run_threads(kRanks, [&](dist::Communicator& world) {
      const Context ctx({.threads = 1});
      train::RetrievalOptions options;
      options.model.layers = 2;
      options.model.width = 64;
      options.model.heads = 2;
      options.model.dq = options.model.dv = 32;
      options.model.max_length = 64;
      options.model.norm_length = 75;
      options.memory.capacity = 4096;
      options.negatives.count = 16;
      options.table_optimiser = embedding::SparseOptimiser::kAdaGrad;
      options.ranks.schedule = schedule;
      options.ranks.topology = dist::make_topology(nodes, 0);
      const std::int64_t items = 500;
      train::RetrievalTrainer<float> trainer(ctx, world, options, items);
      trainer.initialise(ctx);
      Watchdog watchdog(world.split(0, world.rank(), "watchdog"));
      const test::StepShape shape = {
          .sequences = world.rank() == 2 ? 60 : 15, .longest = 64, .items = items};
      double seconds = 0;
      for (int step = 0; step < 20; ++step) {
        const data::Batch batch = test::share_of(shape, step, 0, 1);
        const std::int64_t begin = Trace::now_ns();
        trainer.step(ctx, {&batch, 1});
        seconds += static_cast<double>(Trace::now_ns() - begin) * 1e-9;
        if ((step + 1) % Watchdog::kEvery != 0) continue;
        const auto slow = watchdog.look({seconds, trainer.times().by_stage});
        if (slow && world.rank() == 0) {
          named = slow;
          named_at = step + 1;
        }
      }
    });
    ASSERT_TRUE(named.has_value());
    EXPECT_LE(named_at, 20);
    EXPECT_EQ(named->rank, 2);
    EXPECT_EQ(named->stage, train::stages::kCompute.name);
    EXPECT_GT(named->excess(), Watchdog::kWorthSaying);
  }
}

}  // namespace
}  // namespace turbogr::run
