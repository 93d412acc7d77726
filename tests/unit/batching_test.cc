#include "turbogr/data/batching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tests/support/messages.h"

namespace turbogr::data {
namespace {

using test::message_of;

std::vector<Window> windows_of(const std::vector<std::int32_t>& lengths) {
  std::vector<Window> windows;
  std::int64_t event = 0;
  for (const std::int32_t length : lengths) {
    windows.push_back({event, length, static_cast<std::int32_t>(windows.size())});
    event += length + 1;
  }
  return windows;
}

std::vector<std::vector<std::int64_t>> epoch_bounds(BatchPlanner& planner) {
  std::vector<std::vector<std::int64_t>> steps;
  while (planner.next_step()) {
    steps.emplace_back(planner.bounds().begin(), planner.bounds().end());
  }
  return steps;
}

using Steps = std::vector<std::vector<std::int64_t>>;

TEST(BatchPlanner, FillsUpToTheBudget) {
  const auto windows = windows_of({3, 4, 2, 5, 1, 1});
  BatchPlanner samples(windows, {.budget = BatchBudget::samples(4), .shuffle = false});
  EXPECT_EQ(epoch_bounds(samples), (Steps{{0, 4}, {4, 6}}));
  EXPECT_EQ(samples.max_batch_samples(), 4);
  EXPECT_GE(samples.max_batch_tokens(), 14);
  BatchPlanner tokens(windows, {.budget = BatchBudget::tokens(7), .shuffle = false});
  EXPECT_EQ(epoch_bounds(tokens), (Steps{{0, 2}, {2, 4}, {4, 6}}));
  EXPECT_EQ(tokens.max_batch_tokens(), 7);
  EXPECT_EQ(epoch_bounds(tokens), (Steps{{0, 2}, {2, 4}, {4, 6}}));  // and again
  EXPECT_EQ(tokens.state().epoch, 2);
}

TEST(BatchPlanner, RanksShareAStepAndTheLastStepEvenly) {
  const auto windows = windows_of({1, 1, 1, 1, 1, 1, 1, 1, 1});
  BatchPlanner planner(windows, {.budget = BatchBudget::samples(3), .world = 2, .shuffle = false});
  EXPECT_EQ(epoch_bounds(planner), (Steps{{0, 3, 6}, {6, 8, 9}}));
  BatchPlanner many(windows, {.budget = BatchBudget::samples(100), .world = 4, .shuffle = false});
  EXPECT_EQ(epoch_bounds(many), (Steps{{0, 3, 6, 9, 9}}));
  const auto few = windows_of({2, 2});
  BatchPlanner idle(few, {.budget = BatchBudget::tokens(10), .world = 3, .shuffle = false});
  EXPECT_EQ(epoch_bounds(idle), (Steps{{0, 1, 2, 2}}));
}

TEST(BatchPlanner, ShufflesBySeedAndEpoch) {
  const auto windows = windows_of(std::vector<std::int32_t>(50, 2));
  const auto orders = [&](std::uint64_t seed) {
    BatchPlanner planner(windows, {.budget = BatchBudget::samples(50), .seed = seed});
    std::vector<std::vector<std::uint32_t>> found;
    for (int epoch = 0; epoch < 2; ++epoch) {
      EXPECT_TRUE(planner.next_step());
      found.emplace_back(planner.order().begin(), planner.order().end());
      EXPECT_FALSE(planner.next_step());
    }
    return found;
  };
  const auto first = orders(1);
  EXPECT_EQ(first, orders(1));
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[0], orders(2)[0]);
}

TEST(BatchPlanner, SortsByLengthInsideOfChunksOfBatches) {
  constexpr std::size_t kBatch = 4, kChunk = 3 * kBatch, kWindows = 43;
  std::vector<std::int32_t> lengths(kWindows);
  for (std::size_t i = 0; i < kWindows; ++i) lengths[i] = 1 + static_cast<std::int32_t>(i * 7 % 20);
  const auto windows = windows_of(lengths);
  const auto order_of = [](BatchPlanner& planner) {
    EXPECT_TRUE(planner.next_step());
    return std::vector<std::uint32_t>(planner.order().begin(), planner.order().end());
  };
  PlanOptions options = {.budget = BatchBudget::samples(kBatch), .seed = 5, .whole_step = true};
  BatchPlanner plain(windows, options);
  const auto shuffled = order_of(plain);

  // What the chunks hold is what the shuffle put there; sorted, they are cut into batches.
  using Batches = std::vector<std::vector<std::uint32_t>>;
  const auto cut = [&](const std::vector<std::uint32_t>& order) {
    Batches batches;
    for (std::size_t at = 0; at < order.size(); at += kBatch) {
      const auto first = order.begin() + static_cast<std::ptrdiff_t>(at);
      batches.emplace_back(first,
                           first + static_cast<std::ptrdiff_t>(std::min(kBatch, kWindows - at)));
    }
    return batches;
  };
  const auto sorted_by = [&](const std::function<std::int64_t(std::uint32_t)>& length) {
    auto order = shuffled;
    for (std::size_t at = 0; at < kWindows; at += kChunk) {
      const auto first = order.begin() + static_cast<std::ptrdiff_t>(at);
      std::stable_sort(first, first + static_cast<std::ptrdiff_t>(std::min(kChunk, kWindows - at)),
                       [&](std::uint32_t a, std::uint32_t b) { return length(a) < length(b); });
    }
    return cut(order);
  };
  const auto by_length = sorted_by([&](std::uint32_t i) { return lengths[i]; });
  options.sort_batches = 3;
  BatchPlanner planner(windows, options);
  const auto order = order_of(planner);
  Batches batches = cut(order);
  EXPECT_NE(batches, by_length);  // they come in another order, the short one last
  EXPECT_EQ(batches.back(), by_length.back());
  Batches wanted = by_length;
  std::sort(wanted.begin(), wanted.end());
  std::sort(batches.begin(), batches.end());
  EXPECT_EQ(batches, wanted);

  // By what it is told, where that is something else.
  options.length_of = [](const Window& window) { return -window.first_event; };
  BatchPlanner backwards(windows, options);
  batches = cut(order_of(backwards));
  wanted = sorted_by([&](std::uint32_t i) { return -windows[i].first_event; });
  std::sort(wanted.begin(), wanted.end());
  std::sort(batches.begin(), batches.end());
  EXPECT_EQ(batches, wanted);
  options.length_of = nullptr;

  // The same from its seed, in another order the next epoch, and from the middle of one.
  BatchPlanner again(windows, options);
  EXPECT_EQ(order_of(again), order);
  again.restore({.seed = 5, .window = 16, .windows = kWindows});
  EXPECT_EQ(order_of(again), order);
  EXPECT_EQ(again.bounds().front(), 16);
  again.restore({.seed = 5, .epoch = 1, .windows = kWindows});
  EXPECT_NE(order_of(again), order);

  // One chunk of everything, however many batches are asked for.
  options.sort_batches = std::int64_t{1} << 62;
  BatchPlanner whole(windows, options);
  for (auto& batch : cut(order_of(whole))) {
    EXPECT_TRUE(std::is_sorted(batch.begin(), batch.end(), [&](std::uint32_t a, std::uint32_t b) {
      return lengths[a] < lengths[b];
    }));
  }
  options.budget = BatchBudget::tokens(40);
  EXPECT_NE(message_of([&] { BatchPlanner(windows, options); }).find("give samples"),
            std::string::npos);
}

TEST(BatchPlanner, SaysWhatItCannotDo) {
  const auto windows = windows_of({3, 9});
  EXPECT_EQ(
      message_of([&] { BatchPlanner(windows, {.budget = BatchBudget::tokens(8)}); }),
      "a window of 9 tokens does not fit a batch of 8 tokens; raise the budget or shorten the "
      "windows");
  EXPECT_EQ(BatchBudget::samples(3).text(), "3 samples");
  EXPECT_NE(message_of([&] { BatchPlanner(windows, {.world = 0}); }).find("0 ranks"),
            std::string::npos);
  EXPECT_NE(message_of([] { BatchBudget::samples(0); }).find("above zero"), std::string::npos);
  BatchPlanner planner(windows, {});
  EXPECT_NE(message_of([&] {
              planner.restore({.windows = 3});
            }).find("data of 3 windows cannot be used with 2"),
            std::string::npos);
  EXPECT_NE(message_of([&] { planner.restore({.window = 5, .windows = 2}); }).find("no position"),
            std::string::npos);
}

// The windows of each step, whoever has them: one set a step.
std::vector<std::vector<std::uint32_t>> steps_of(BatchPlanner& planner, int epochs) {
  std::vector<std::vector<std::uint32_t>> steps;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    while (planner.next_step()) {
      steps.emplace_back(planner.order().begin() + planner.bounds().front(),
                         planner.order().begin() + planner.bounds().back());
      std::sort(steps.back().begin(), steps.back().end());
    }
  }
  return steps;
}

TEST(BatchPlanner, AWholeStepIsTheSameForAnyNumberOfRanks) {
  const auto windows = windows_of({3, 4, 2, 5, 1, 1, 7, 2, 2, 3});
  struct Order {
    bool shuffle;
    std::int64_t sort_batches;
  };
  for (const auto& [shuffle, sort_batches] : {Order{false, 0}, Order{true, 0}, Order{true, 2}}) {
    const PlanOptions alone = {.budget = BatchBudget::samples(4),
                               .seed = 3,
                               .shuffle = shuffle,
                               .sort_batches = sort_batches,
                               .whole_step = true};
    BatchPlanner one(windows, alone);
    const auto steps = steps_of(one, 3);
    for (const int world : {2, 3, 5}) {
      PlanOptions options = alone;
      options.world = world;
      BatchPlanner many(windows, options);
      EXPECT_EQ(steps_of(many, 3), steps) << world;
      EXPECT_EQ(many.max_batch_tokens(), (4 + world - 1) / world * 7);
      // Longest to the last rank, the others to the first: nothing is lost, orders of later epochs
      // are as they were.
      options.reallocate = [&](std::span<const std::int64_t> lengths, std::int64_t max_tokens,
                               std::span<std::int32_t> rank_of) {
        EXPECT_EQ(max_tokens, many.max_batch_tokens());
        EXPECT_TRUE(std::is_sorted(rank_of.begin(), rank_of.end()));
        for (std::size_t i = 0; i < lengths.size(); ++i) {
          rank_of[i] = lengths[i] > 4 ? world - 1 : 0;
        }
      };
      BatchPlanner moved(windows, options);
      EXPECT_EQ(steps_of(moved, 3), steps);
      moved.restore({.seed = 3, .windows = 10});
      ASSERT_TRUE(moved.next_step());
      const auto bounds = moved.bounds();
      for (std::int64_t at = bounds.front(); at < bounds.back(); ++at) {
        const bool last = at >= bounds[static_cast<std::size_t>(world) - 1];
        EXPECT_EQ(windows[moved.order()[static_cast<std::size_t>(at)]].length > 4, last);
      }
    }
  }
  BatchPlanner wrong(windows,
                     {.budget = BatchBudget::tokens(9),
                      .world = 2,
                      .reallocate = [](std::span<const std::int64_t>, std::int64_t,
                                       std::span<std::int32_t> rank_of) { rank_of[0] = 2; }});
  EXPECT_NE(message_of([&] { wrong.next_step(); }).find("rank 2 of 2"), std::string::npos);
}

TEST(LoaderState, SurvivesJson) {
  const LoaderState state = {.seed = ~std::uint64_t{0}, .epoch = 3, .window = 17, .windows = 90};
  EXPECT_EQ(LoaderState::from_json(state.to_json()), state);
  EXPECT_NE(message_of([] { LoaderState::from_json("{\"seed\": 1}"); }).find("cannot be read"),
            std::string::npos);
  EXPECT_NE(message_of([] { LoaderState::from_json("nonsense"); }).find("cannot be read"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::data
