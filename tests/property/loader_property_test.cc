// Laws of the loader over random stores: every token exactly once, the same order for any threads,
// disjoint shares for ranks, and a restored loader goes on as if it had never stopped.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/support/stores.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/loader.h"

namespace turbogr::data {
namespace {

using test::TemporaryFolder;
using test::write_numbered_store;
using Ints = std::vector<std::int64_t>;

Ints random_lengths(std::uint64_t seed, std::int64_t users) {
  PhiloxStream random(seed);
  Ints lengths;
  for (std::int64_t user = 0; user < users; ++user) {
    lengths.push_back(
        static_cast<std::int64_t>(random.below(4) == 0 ? random.below(5) : random.below(60)));
  }
  return lengths;
}

const std::vector<BatchBudget>& budgets() {
  static const std::vector<BatchBudget> all = {BatchBudget::samples(1), BatchBudget::samples(7),
                                               BatchBudget::samples(1000), BatchBudget::tokens(16),
                                               BatchBudget::tokens(100)};
  return all;
}

std::vector<Batch> epoch_of(Loader& loader) {
  std::vector<Batch> batches;
  Batch batch;
  while (loader.next(batch)) batches.push_back(batch);
  return batches;
}

bool same(const Batch& a, const Batch& b) {
  return a.epoch == b.epoch && a.offsets == b.offsets && a.items == b.items &&
         a.targets == b.targets && a.key_times == b.key_times && a.query_times == b.query_times &&
         a.row_keys == b.row_keys && a.users == b.users && a.windows == b.windows;
}

TEST(LoaderProperty, EveryTokenOnceAnEpochWithinTheBudgetOverAllRanks) {
  TemporaryFolder folder;
  write_numbered_store(folder / "s", random_lengths(1, 80));
  const Store store(folder / "s");
  for (const LongHistory long_history : {LongHistory::kLast, LongHistory::kWindows}) {
    const WindowOptions windows = {.max_length = 16, .long_history = long_history};
    Ints wanted;
    for (const Window& window : make_windows(store, windows)) {
      for (std::int64_t i = 0; i < window.length; ++i) wanted.push_back(window.first_event + i);
    }
    if (long_history == LongHistory::kWindows) {
      // Then the tokens are all events but each user's last three: one is only ever a target, two
      // are kept back.
      std::int64_t tokens = 0;
      for (const std::int64_t length : random_lengths(1, 80)) {
        tokens += std::max<std::int64_t>(0, length - 3);
      }
      EXPECT_EQ(static_cast<std::int64_t>(wanted.size()), tokens);
    }
    for (const BatchBudget& budget : budgets()) {
      for (const int world : {1, 2, 5}) {
        Ints found;
        std::size_t steps = 0;
        for (int rank = 0; rank < world; ++rank) {
          Loader loader(store, {.windows = windows,
                                .plan = {.budget = budget, .world = world, .seed = 11},
                                .rank = rank,
                                .threads = 2});
          const std::vector<Batch> batches = epoch_of(loader);
          EXPECT_TRUE(rank == 0 || batches.size() == steps);  // ranks step together
          steps = batches.size();
          for (const Batch& batch : batches) {
            double cost = 0;
            for (std::int64_t b = 0; b < batch.num_sequences(); ++b) {
              const auto at = static_cast<std::size_t>(b);
              cost += budget.cost_of(batch.offsets[at + 1] - batch.offsets[at]);
            }
            EXPECT_LE(cost, budget.limit());
            EXPECT_LE(batch.num_tokens(), loader.max_batch_tokens());
            found.insert(found.end(), batch.items.begin(), batch.items.end());
            for (std::size_t i = 0; i < batch.items.size(); ++i) {
              ASSERT_EQ(batch.targets[i], batch.items[i] + 1);
              ASSERT_EQ(batch.key_times[i], test::numbered_time(batch.items[i]));
              ASSERT_EQ(batch.query_times[i], test::numbered_time(batch.targets[i]));
            }
          }
        }
        std::sort(found.begin(), found.end());
        EXPECT_EQ(found, wanted) << budget.text() << ", " << world << " ranks";
      }
    }
  }
}

TEST(LoaderProperty, ThreadsAndQueueDoNotChangeABit) {
  TemporaryFolder folder;
  write_numbered_store(folder / "s", random_lengths(2, 120));
  const Store store(folder / "s");
  for (const BatchBudget& budget : budgets()) {
    std::vector<Batch> reference;
    for (const int threads : {0, 1, 2, 4}) {
      Loader loader(store, {.windows = {.max_length = 16, .long_history = LongHistory::kWindows},
                            .plan = {.budget = budget, .world = 2, .seed = 5},
                            .rank = 1,
                            .threads = threads,
                            .queue = threads == 2 ? 1 : 5});
      std::vector<Batch> batches = epoch_of(loader);
      for (const Batch& batch : epoch_of(loader)) batches.push_back(batch);  // a second epoch
      if (threads == 0) {
        reference = batches;
        continue;
      }
      ASSERT_EQ(batches.size(), reference.size());
      for (std::size_t i = 0; i < batches.size(); ++i) {
        ASSERT_TRUE(same(batches[i], reference[i])) << i;
      }
    }
  }
}

TEST(LoaderProperty, ARestoredLoaderGoesOnAsIfItHadNeverStopped) {
  TemporaryFolder folder;
  write_numbered_store(folder / "s", random_lengths(3, 60));
  const Store store(folder / "s");
  const LoaderOptions options = {
      .windows = {.max_length = 16, .long_history = LongHistory::kWindows},
      .plan = {.budget = BatchBudget::tokens(60), .seed = 5},
      .threads = 2,
      .queue = 3};
  // Two epochs straight through, with the position after every call.
  std::vector<std::pair<bool, Batch>> calls;
  std::vector<LoaderState> states;
  {
    Loader loader(store, options);
    for (int ends = 0; ends < 2;) {
      Batch batch;
      const bool given = loader.next(batch);
      ends += given ? 0 : 1;
      calls.emplace_back(given, batch);
      states.push_back(LoaderState::from_json(loader.state().to_json()));
    }
  }
  Loader resumed(store, [&] {
    LoaderOptions other = options;
    other.plan.seed = 999;  // the position brings its own
    other.threads = 1;
    return other;
  }());
  for (std::size_t stop = 0; stop + 1 < calls.size(); ++stop) {
    resumed.restore(states[stop]);
    EXPECT_EQ(resumed.state(), states[stop]);
    for (std::size_t i = stop + 1; i < std::min(calls.size(), stop + 4); ++i) {
      Batch batch;
      ASSERT_EQ(resumed.next(batch), calls[i].first) << stop << " " << i;
      ASSERT_TRUE(!calls[i].first || same(batch, calls[i].second)) << stop << " " << i;
    }
  }
}

TEST(LoaderProperty, BuffersGoRoundAndNeverGrow) {
  TemporaryFolder folder;
  write_numbered_store(folder / "s", random_lengths(6, 150));
  const Store store(folder / "s");
  for (const BatchBudget& budget : budgets()) {
    Loader loader(store, {.windows = {.max_length = 16},
                          .plan = {.budget = budget, .seed = 1},
                          .threads = 2,
                          .queue = 3});
    std::set<const std::int64_t*> memory;
    Batch batch;
    for (int epoch = 0; epoch < 4; ++epoch) {
      while (loader.next(batch)) {
        memory.insert(batch.items.data());
        memory.insert(batch.query_times.data());
        memory.insert(batch.users.data());
      }
    }
    EXPECT_LE(memory.size(), 3u * (3 + 1)) << budget.text();
  }
}

TEST(LoaderProperty, APositionServesAnyNumberOfRanks) {
  TemporaryFolder folder;
  write_numbered_store(folder / "s", random_lengths(4, 90));
  const Store store(folder / "s");
  const auto options = [](int world, int rank) {
    return LoaderOptions{.windows = {.max_length = 16},
                         .plan = {.budget = BatchBudget::samples(4), .world = world, .seed = 8},
                         .rank = rank};
  };
  std::map<std::int64_t, int> times_met;
  LoaderState state;
  for (int rank = 0; rank < 3; ++rank) {
    Loader loader(store, options(3, rank));
    Batch batch;
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(loader.next(batch));
      for (const std::int64_t window : batch.windows) ++times_met[window];
    }
    EXPECT_TRUE(rank == 0 || loader.state() == state);
    state = loader.state();
  }
  std::int64_t windows = 0;
  for (int rank = 0; rank < 2; ++rank) {
    Loader loader(store, options(2, rank));
    windows = loader.num_windows();
    loader.restore(state);
    for (const Batch& batch : epoch_of(loader)) {
      for (const std::int64_t window : batch.windows) ++times_met[window];
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(times_met.size()), windows);
  for (const auto& [window, count] : times_met) EXPECT_EQ(count, 1) << window;
}

}  // namespace
}  // namespace turbogr::data
