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
#include "turbogr/train/retrieval_trainer.h"

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
  EXPECT_TRUE(has(suspect_of(ranks)->text, "rank 2 is the slowest, 36 %"));
  ranks[1].by_stage[place_of(train::stages::kDenseSums)] = 0;  // nothing accounts for its time
  ranks[2] = ranks[0];
  const SlowRank reading = slowest_of(ranks);
  EXPECT_EQ(reading.rank, 1);
  EXPECT_TRUE(has(reading.stage, "reading"));
}

TEST(Watchdog, ComparesHowLongItWaitedForEachRank) {
  EXPECT_EQ(latest_of(std::vector<double>{1, 0, 5, 1}, 1), 2);
  EXPECT_EQ(latest_of(std::vector<double>{1, 0, 5, 5}, 1), -1);  // for two of three: no one's link
  EXPECT_EQ(latest_of(std::vector<double>{0, 5}, 0), -1);        // there is nobody else
  EXPECT_EQ(latest_of(std::vector<double>{0, 0, 0, 0}, 0), -1);
}

TEST(Watchdog, NamesTheRankWhoseMessagesAreLate) {
  std::vector<RankTimes> ranks(5);
  for (RankTimes& times : ranks) {
    times.seconds = 10;
    times.by_stage[place_of(train::stages::kDenseSums)] = 6;
  }
  EXPECT_FALSE(suspect_of(ranks).has_value());
  const auto wait = [&](std::size_t rank, int late_peer) {
    ranks[rank].late_peer = late_peer;
    ranks[rank].late_seconds = 5;
  };
  // 0, 3 and 4 wait for 1 themselves, 2 for 0 and so for 1; which waits for 0, as its link is slow
  // both ways.
  wait(0, 1);
  wait(3, 1);
  wait(4, 1);
  wait(2, 0);
  wait(1, 0);
  const std::optional<Suspect> found = suspect_of(ranks);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rank, 1);
  EXPECT_TRUE(has(found->text, "messages of rank 1 are late, 50 % of the time")) << found->text;
  wait(3, 0);
  EXPECT_TRUE(has(suspect_of(ranks)->text, "messages of rank 0 are late"));
  ranks[3].late_peer = -1;
  EXPECT_TRUE(has(suspect_of(ranks)->text, "messages between ranks 0 and 1 are late"));
  // A rank that is busy is named for that.
  ranks[3].by_stage[place_of(train::stages::kDenseSums)] = 1;
  EXPECT_TRUE(has(suspect_of(ranks)->text, "rank 3 is the slowest"));
  ranks[3].by_stage = ranks[0].by_stage;
  // Seldom waited for.
  for (RankTimes& times : ranks) times.late_seconds /= 4;
  EXPECT_FALSE(suspect_of(ranks).has_value());
  // Everybody waits for somebody else: a network that is slow as a whole.
  for (std::size_t r = 0; r < ranks.size(); ++r) wait(r, static_cast<int>((r + 1) % ranks.size()));
  EXPECT_FALSE(latest_of(ranks).has_value());
}

// Rank 2 has four times the work of the others.
TEST(Watchdog, NamesASlowedRankWithinTwentySteps) {
  constexpr int kRanks = 3;
  const std::vector<int> nodes(kRanks, 0);
  for (const train::StepSchedule schedule :
       {train::StepSchedule::kSerial, train::StepSchedule::kExactPrefetch}) {
    std::optional<Suspect> named;
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
        const auto found =
            watchdog.look({.seconds = seconds, .by_stage = trainer.times().by_stage});
        if (found && world.rank() == 0) {
          named = found;
          named_at = step + 1;
        }
      }
    });
    ASSERT_TRUE(named.has_value());
    EXPECT_LE(named_at, 20);
    EXPECT_EQ(named->rank, 2);
    EXPECT_TRUE(has(named->text, std::string("most in: ") + train::stages::kCompute.name))
        << named->text;
  }
}

}  // namespace
}  // namespace turbogr::run
