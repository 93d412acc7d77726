#include "turbogr/data/loader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/stores.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

using test::has;
using test::message_of;
using test::numbered_time;
using test::TemporaryFolder;
using test::write_numbered_store;
using Ints = std::vector<std::int64_t>;

TEST(Windows, LastKeepsTheEndAndWindowsKeepAll) {
  TemporaryFolder folder;
  write_numbered_store(folder / "s", {12, 2, 0, 4});
  const Store store(folder / "s");
  const auto of = [&](const WindowOptions& options) {
    std::vector<Ints> found;
    for (const Window& w : make_windows(store, options)) {
      found.push_back({w.first_event, w.length, w.user});
    }
    return found;
  };
  using Found = std::vector<Ints>;
  // 12 events, the last kept back: 10 tokens, of which the last 4.
  EXPECT_EQ(of({.holdout = Holdout("test"), .max_length = 4}), (Found{{6, 4, 0}, {14, 2, 3}}));
  EXPECT_EQ(of({.holdout = Holdout("test"), .max_length = 100}), (Found{{0, 10, 0}, {14, 2, 3}}));
  EXPECT_EQ(
      of({.holdout = Holdout("test"), .max_length = 4, .long_history = LongHistory::kWindows}),
      (Found{{0, 2, 0}, {2, 4, 0}, {6, 4, 0}, {14, 2, 3}}));
  EXPECT_EQ(
      of({.holdout = Holdout("test"), .max_length = 5, .long_history = LongHistory::kWindows}),
      (Found{{0, 5, 0}, {5, 5, 0}, {14, 2, 3}}));
  EXPECT_EQ(of({.holdout = Holdout("test"),
                .split = Split::kTest,
                .max_length = 3,
                .long_history = LongHistory::kWindows}),
            (Found{{8, 3, 0}, {14, 3, 3}}));
  EXPECT_EQ(of({.split = Split::kValidation, .max_length = 3}), (Found{{7, 3, 0}, {14, 2, 3}}));
  EXPECT_EQ(of({.holdout = Holdout("time:" + std::to_string(numbered_time(5))), .max_length = 9}),
            (Found{{0, 4, 0}}));
  EXPECT_TRUE(has(message_of([&] { of({.max_length = 0}); }), "a longest window of 0 tokens"));
  EXPECT_TRUE(has(message_of([&] { of({.max_length = 1 << 24}); }), "use 1 to 16777215"));
  EXPECT_EQ(long_history_from_name("windows"), LongHistory::kWindows);
  EXPECT_EQ(long_history_from_name("last"), LongHistory::kLast);
  EXPECT_EQ(message_of([] { long_history_from_name("first"); }),
            "long histories 'first'; use last or windows");
}

TEST(Loader, ABatchHoldsInputsTargetsAndTimesEndToEnd) {
  TemporaryFolder folder;
  write_numbered_store(folder / "s", {5, 4}, {.signals = true});
  const Store store(folder / "s");
  Loader loader(store, {.windows = {.holdout = Holdout("test"), .max_length = 2},
                        .plan = {.shuffle = false},
                        .collate = {.signals = true}});
  EXPECT_EQ(loader.num_windows(), 2);
  EXPECT_EQ(loader.num_tokens(), 4);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.offsets, (Ints{0, 2, 4}));
  EXPECT_EQ(batch.items, (Ints{1, 2, 5, 6}));
  EXPECT_EQ(batch.targets, (Ints{2, 3, 6, 7}));
  const auto times = [](const Ints& events) {
    Ints found;
    for (const std::int64_t event : events) found.push_back(numbered_time(event));
    return found;
  };
  EXPECT_EQ(batch.key_times, times({1, 2, 5, 6}));
  EXPECT_EQ(batch.query_times, times({2, 3, 6, 7}));
  EXPECT_EQ(batch.signals, (std::vector<std::uint32_t>{1, 2, 1, 2}));
  EXPECT_EQ(batch.users, (Ints{0, 1}));
  EXPECT_EQ(batch.row_keys,
            (std::vector<std::uint64_t>{0, 1, 1u << kPositionBits, (1u << kPositionBits) + 1}));
  EXPECT_EQ(batch.num_sequences(), 2);
  EXPECT_EQ(batch.num_tokens(), 4);
  EXPECT_EQ(batch.offsets_view()(2), 4);
  EXPECT_EQ(view_of(batch.items)(3), 6);
  EXPECT_TRUE(batch.seen_offsets.empty());
  EXPECT_FALSE(loader.next(batch));
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.epoch, 1);
}

TEST(Loader, EvaluationShowsTheTargetLastAndAllThatWasSeen) {
  TemporaryFolder folder;
  write_numbered_store(folder / "s", {5, 1, 4});
  const Store store(folder / "s");
  Batch batch;
  Loader test(store, {.windows = {.split = Split::kTest, .max_length = 2}});
  ASSERT_TRUE(test.next(batch));
  EXPECT_EQ(batch.users, (Ints{0, 2}));
  EXPECT_EQ(batch.items, (Ints{2, 3, 7, 8}));
  EXPECT_EQ(batch.targets, (Ints{3, 4, 8, 9}));
  EXPECT_EQ(batch.query_times[3], numbered_time(9));
  EXPECT_EQ(batch.seen_offsets, (Ints{0, 4, 7}));
  EXPECT_EQ(batch.seen_items, (Ints{0, 1, 2, 3, 6, 7, 8}));
  EXPECT_FALSE(test.next(batch));
  Loader validation(store, {.windows = {.split = Split::kValidation, .max_length = 9}});
  ASSERT_TRUE(validation.next(batch));
  EXPECT_EQ(batch.targets, (Ints{1, 2, 3, 7, 8}));
  EXPECT_EQ(batch.seen_items, (Ints{0, 1, 2, 6, 7}));
}

TEST(Loader, TimesComeInTheUnitAskedFor) {
  TemporaryFolder folder;
  write_numbered_store(folder / "ms", {4}, {.time_unit = TimeUnit::kMilliseconds});
  write_numbered_store(folder / "order", {4}, {.time_unit = TimeUnit::kNone});
  write_numbered_store(folder / "s", {4});
  Batch batch;
  const Store store(folder / "ms");
  const WindowOptions windows = {.holdout = Holdout("test"), .max_length = 9};
  Loader(store, {.windows = windows}).next(batch);
  EXPECT_EQ(batch.query_times, (Ints{1000, 1000}));  // 1,000,007 ms
  Loader(store, {.windows = windows, .collate = {.time_unit = TimeUnit::kMilliseconds}})
      .next(batch);
  EXPECT_EQ(batch.query_times, (Ints{1000007, 1000014}));
  EXPECT_EQ(batch.key_times, (Ints{1000000, 1000007}));
  const Store order(folder / "order");
  Loader(order, {.windows = windows}).next(batch);
  EXPECT_TRUE(batch.key_times.empty());
  EXPECT_EQ(batch.items, (Ints{0, 1}));
  const Store seconds(folder / "s");
  EXPECT_TRUE(
      has(message_of([&] { Loader(seconds, {.collate = {.time_unit = TimeUnit::kMilliseconds}}); }),
          "milliseconds cannot be had"));
}

TEST(Loader, MillisecondsRoundDownBefore1970Too) {
  TemporaryFolder folder;
  StoreWriter writer(folder / "s", {.time_unit = TimeUnit::kMilliseconds, .num_items = 1});
  writer.add_user({.items = Ints(5, 0),
                   .times = Ints{-2000, -1999, -1, 0, 1999},
                   .signals = {},
                   .numbers = {}});
  writer.finish();
  const Store store(folder / "s");
  Batch batch;
  Loader(store, {.windows = {.holdout = Holdout("test")}}).next(batch);
  EXPECT_EQ(batch.key_times, (Ints{-2, -2, -1}));
  EXPECT_EQ(batch.query_times, (Ints{-2, -1, 0}));
}

TEST(Loader, ReadsStoresOfMoreItemsThan31BitsCount) {
  TemporaryFolder folder;
  const std::int64_t many = (std::int64_t{1} << 31) + 10;
  StoreWriter writer(folder / "s", {.num_items = many});
  const Ints items = {many - 1, 0, many - 3, many - 4};
  writer.add_user({.items = items, .times = {}, .signals = {}, .numbers = {}});
  writer.finish();
  const Store store(folder / "s");
  ASSERT_TRUE(store.wide_items());
  Batch batch;
  Loader(store, {.windows = {.split = Split::kTest}}).next(batch);
  EXPECT_EQ(batch.items, (Ints{many - 1, 0, many - 3}));
  EXPECT_EQ(batch.targets, (Ints{0, many - 3, many - 4}));
  EXPECT_EQ(batch.seen_items, (Ints{many - 1, 0, many - 3}));
}

TEST(Loader, RefusesWhatItCannotServe) {
  TemporaryFolder folder;
  write_numbered_store(folder / "s", {5, 4});
  write_numbered_store(folder / "short", {1, 2});
  const Store store(folder / "s");
  const auto message = [&](const LoaderOptions& options) {
    return message_of([&] { Loader loader(store, options); });
  };
  EXPECT_EQ(message({.plan = {.world = 2}, .rank = 2}), "rank 2 of a world of 2");
  EXPECT_TRUE(has(message({.rank = -1}), "rank -1"));
  EXPECT_TRUE(has(message({.threads = -1}), "a loader of -1 threads"));
  EXPECT_TRUE(has(message({.queue = 0}), "a loader queue of 0"));
  EXPECT_TRUE(has(message({.collate = {.signals = true}}), "keeps no action signals"));
  const Store too_short(folder / "short");
  EXPECT_TRUE(has(message_of([&] { Loader loader(too_short, {}); }),
                  "has no user with enough events for the train split of hold-out "
                  "'validation_test'; wanted: a user with 4 events, two of which are not held out "
                  "(hold-out 'test' holds back one less)"));
}

// Event 7 of a store that opens well names an item that does not exist.
void damage(const std::filesystem::path& store, std::int32_t item) {
  std::fstream file(store / "items.bin", std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(7 * 4);
  file.write(reinterpret_cast<const char*>(&item), 4);
}

TEST(Loader, AnErrorInTheBackgroundArrivesInItsPlaceWithItsCause) {
  TemporaryFolder folder;
  for (const std::int32_t item : {1000, -5}) {
    const auto path = folder / std::to_string(item);
    write_numbered_store(path, {5, 5, 5, 5});
    damage(path, item);
    const Store store(path);
    for (const int threads : {0, 1, 3}) {
      Loader loader(store, {.windows = {.max_length = 9},
                            .plan = {.budget = BatchBudget::samples(1), .shuffle = false},
                            .threads = threads});
      Batch batch;
      ASSERT_TRUE(loader.next(batch));  // user 0 is sound
      const LoaderState before = loader.state();
      const std::string message = message_of([&] { loader.next(batch); });
      EXPECT_TRUE(has(message, "loader: batch 1 of epoch 0: '")) << message;
      EXPECT_TRUE(has(message, "event 7 of user 1 names item " + std::to_string(item))) << message;
      EXPECT_EQ(message_of([&] { loader.next(batch); }), message);
      EXPECT_EQ(loader.state(), before);
      loader.restore({.seed = 0, .epoch = 0, .window = 2, .windows = 4});  // past the damage
      ASSERT_TRUE(loader.next(batch));
      EXPECT_EQ(batch.users, Ints{2});
    }
  }
}

TEST(Loader, AnErrorInThePlanArrivesInItsPlaceWithItsCause) {
  TemporaryFolder folder;
  write_numbered_store(folder / "s", Ints(8, 5));
  const Store store(folder / "s");
  struct NoStandardException {};
  for (const bool standard : {true, false}) {
    for (const int threads : {0, 1, 3}) {
      int steps = 0;
      bool broken = true;
      PlanOptions plan{.budget = BatchBudget::samples(1), .world = 2, .shuffle = false};
      plan.reallocate = [&](std::span<const std::int64_t>, std::int64_t, std::span<std::int32_t>) {
        if (++steps != 2 || !broken) return;
        if (standard) throw Error("no way to share them out");
        throw NoStandardException();
      };
      Loader loader(store, {.windows = {.max_length = 9}, .plan = plan, .threads = threads});
      Batch batch;
      ASSERT_TRUE(loader.next(batch));
      const LoaderState before = loader.state();
      const std::string message = message_of([&] { loader.next(batch); });
      EXPECT_EQ(message,
                std::string("loader: batch 1 of epoch 0: ") +
                    (standard ? "no way to share them out" : "an exception of an unknown kind"));
      EXPECT_EQ(message_of([&] { loader.next(batch); }), message);
      EXPECT_EQ(loader.state(), before);
      broken = false;
      loader.restore(before);
      ASSERT_TRUE(loader.next(batch));
      EXPECT_EQ(batch.users, Ints{2});
    }
  }
}

TEST(Loader, StopsCleanlyWithBatchesUntaken) {
  TemporaryFolder folder;
  write_numbered_store(folder / "s", Ints(50, 9));
  const Store store(folder / "s");
  for (int i = 0; i < 20; ++i) {
    Loader loader(store, {.windows = {.max_length = 4},
                          .plan = {.budget = BatchBudget::samples(2)},
                          .threads = 3,
                          .queue = 2});
    Batch batch;
    if (i % 2 == 0) loader.next(batch);
  }
}

TEST(Loader, AFailedRestoreLeavesItWhereItWas) {
  TemporaryFolder folder;
  write_numbered_store(folder / "s", Ints(6, 9));
  const Store store(folder / "s");
  Loader loader(store, {.plan = {.budget = BatchBudget::samples(2), .shuffle = false}});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_TRUE(has(message_of([&] { loader.restore({.windows = 77}); }), "77 windows"));
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.users, (Ints{2, 3}));
}

}  // namespace
}  // namespace turbogr::data
