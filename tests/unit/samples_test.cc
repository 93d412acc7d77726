#include "turbogr/data/samples/samples.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/stores.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/samples/sample_batch.h"

namespace turbogr::data {
namespace {

using test::message_of;
using test::TemporaryFolder;
using test::write_numbered_store;

// [first target, targets, history] of every sample.
using Shape = std::vector<std::vector<std::int64_t>>;

Shape shape_of(const Samples& samples) {
  Shape shape;
  for (std::size_t i = 0; i < samples.windows.size(); ++i) {
    shape.push_back({samples.windows[i].first_event, samples.num_targets[i], samples.history(i)});
  }
  return shape;
}

class SamplesTest : public ::testing::Test {
 protected:
  // Users of 7, 0 and 3 events, numbered 0 to 9.
  SamplesTest() { write_numbered_store(path_, {7, 0, 3}, {.signals = true}); }

  Shape make(const SampleOptions& options) { return shape_of(make_samples(store(), options)); }
  const Store& store() {
    if (!store_) store_ = std::make_unique<Store>(path_);
    return *store_;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path() / "store";
  std::unique_ptr<Store> store_;
};

TEST_F(SamplesTest, BlocksAreCutAnewWhereTheTestBegins) {
  SampleOptions options = {.holdout = Holdout("last:30%"), .targets = 2, .prefix = 3};
  options.max_history = 3;
  // 30 % of 7 events are 2, of 3 events at least 1.
  EXPECT_EQ(make(options), (Shape{{0, 2, 0}, {2, 2, 2}, {4, 1, 3}, {7, 2, 0}}));
  options.split = Split::kTest;
  EXPECT_EQ(make(options), (Shape{{5, 2, 3}, {9, 1, 2}}));
  EXPECT_EQ(make_samples(store(), options).windows[0].length, 3 + 3 + 2);
}

TEST_F(SamplesTest, AHistoryMayEndWhereTheSplitBegins) {
  SampleOptions options = {.holdout = Holdout("last:20%,50%"), .targets = 1};
  options.history_before_split = true;
  // Of 7 events 3 are the test, the one before them is for validation.
  EXPECT_EQ(make(options), (Shape{{0, 1, 0}, {1, 1, 1}, {2, 1, 2}, {7, 1, 0}}));
  options.split = Split::kValidation;
  EXPECT_EQ(make(options), (Shape{{3, 1, 3}, {8, 1, 1}}));
  options.split = Split::kTest;
  EXPECT_EQ(make(options), (Shape{{4, 1, 4}, {5, 1, 4}, {6, 1, 4}, {9, 1, 2}}));
  const Samples samples = make_samples(store(), options);
  const SampleLayout layout = {.prefix = {},
                               .items = {{.name = "item", .keys = {parse_source(store(), "item")}}},
                               .tasks = {{.name = "click", .signals = 1}},
                               .action_bits = {}};
  SampleBatch batch;
  SampleCollator(store(), options, layout).collate(samples, std::vector<std::uint32_t>{2}, batch);
  EXPECT_EQ(batch.items[0].ids, (std::vector<std::int64_t>{1, 2, 3, 4, 7}));  // event e has item e
  options.max_users = 1;
  EXPECT_EQ(make_samples(store(), options).history_ends.size(),
            make_samples(store(), options).windows.size());
}

TEST_F(SamplesTest, TheLastOfEachSplitAreOneSampleAUser) {
  SampleOptions options = {.builder = SampleBuilder::kLast, .targets = 2};
  options.split = Split::kTest;
  EXPECT_EQ(make(options), (Shape{{5, 2, 5}, {8, 2, 1}}));
  options.split = Split::kValidation;
  EXPECT_EQ(make(options), (Shape{{3, 2, 3}, {7, 1, 0}}));
  options.split = Split::kTrain;
  EXPECT_EQ(make(options), (Shape{{1, 2, 1}}));
}

TEST_F(SamplesTest, RequestsAreEventsOfOneTime) {
  TemporaryFolder folder;
  StoreWriter writer(folder.path() / "s", {.time_unit = TimeUnit::kSeconds, .num_items = 5});
  writer.add_user({.items = std::vector<std::int64_t>{0, 1, 2, 3, 4},
                   .times = std::vector<std::int64_t>{10, 20, 20, 30, 30},
                   .signals = {},
                   .numbers = {}});
  writer.finish();
  const Store requests(folder.path() / "s");
  SampleOptions options = {.holdout = Holdout("time:30"), .builder = SampleBuilder::kRequests};
  EXPECT_EQ(shape_of(make_samples(requests, options)), (Shape{{0, 1, 0}, {1, 2, 1}}));
  options.split = Split::kTest;
  EXPECT_EQ(shape_of(make_samples(requests, options)), (Shape{{3, 2, 3}}));
}

TEST_F(SamplesTest, AnchorsHaveTheLastEventsOfEachAction) {
  // Event e has the bits e % 4: click 1, like 2.
  SampleOptions options = {.holdout = Holdout("last:1%"), .builder = SampleBuilder::kAnchors};
  options.anchors = {.signals = {"like"},
                     .actions = {"click", "like"},
                     .per_action = 1,
                     .lookback = 100,
                     .least_history = 2};
  // Likes are 2, 3, 6, 7; 6 and 9 are held back, 7 has no history.
  EXPECT_EQ(make(options), (Shape{{2, 1, 1}, {3, 1, 2}}));
  std::vector<std::int64_t> events;
  SampleHistory history(store(), options);
  history.read(0, 6, events);  // clicks 1 3 5, likes 2 3
  EXPECT_EQ(events, (std::vector<std::int64_t>{3, 5}));
  options.anchors.lookback = 2;
  SampleHistory near(store(), options);
  near.read(0, 6, events);
  EXPECT_EQ(events, (std::vector<std::int64_t>{5}));
}

TEST_F(SamplesTest, TimeOrderGoesThroughWindowsUserByUser) {
  // Two users who take turns: events of time 0, 20, 40 and 10, 30, 50.
  TemporaryFolder folder;
  StoreWriter writer(folder.path() / "s", {.time_unit = TimeUnit::kSeconds, .num_items = 6});
  for (const std::int64_t user : {0, 1}) {
    writer.add_user({.items = std::vector<std::int64_t>{0, 1, 2},
                     .times = std::vector<std::int64_t>{10 * user, 20 + 10 * user, 40 + 10 * user},
                     .signals = {},
                     .numbers = {}});
  }
  writer.finish();
  const Store turns(folder.path() / "s");
  SampleOptions options = {.holdout = Holdout("time:60"), .targets = 1};
  const auto firsts = [&] {
    std::vector<std::int64_t> events;
    for (const Window& window : make_samples(turns, options).windows) {
      events.push_back(window.first_event);
    }
    return events;
  };
  EXPECT_EQ(firsts(), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
  options.order = SampleOrder::kTime;
  EXPECT_EQ(firsts(), (std::vector<std::int64_t>{0, 3, 1, 4, 2, 5}));
  options.window_seconds = 30;
  EXPECT_EQ(firsts(), (std::vector<std::int64_t>{0, 1, 3, 2, 4, 5}));
  options.window_batch = 2;
  EXPECT_EQ(firsts(), (std::vector<std::int64_t>{0, 1, 2, 4}));
  options.window_batch = 3;
  EXPECT_EQ(firsts(), (std::vector<std::int64_t>{0, 1, 3, 2, 4, 5}));
  options.window_batch = 4;
  EXPECT_NE(message_of(firsts).find("no window of 30 seconds has the 4 samples of a batch"),
            std::string::npos);
}

TEST_F(SamplesTest, AFewUsersAreDrawnByTheSeed) {
  SampleOptions options = {.holdout = Holdout("last:30%"), .split = Split::kTest};
  options.max_users = 1;
  std::vector<std::size_t> drawn(2);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    options.user_seed = seed;
    const Samples samples = make_samples(store(), options);
    ASSERT_EQ(samples.size(), 1);
    EXPECT_EQ(make_samples(store(), options).windows[0].user, samples.windows[0].user);
    ++drawn[samples.windows[0].user == 0 ? 0 : 1];
  }
  EXPECT_GT(drawn[0], 0u);
  EXPECT_GT(drawn[1], 0u);
}

TEST_F(SamplesTest, WhatAStoreWithoutTimesCannotGiveIsSaid) {
  TemporaryFolder folder;
  write_numbered_store(folder.path() / "s", {4}, {.time_unit = TimeUnit::kNone});
  const Store order(folder.path() / "s");
  EXPECT_NE(message_of([&] {
              make_samples(order, {.builder = SampleBuilder::kRequests});
            }).find("has no times, and a request is what one user met at one time"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              make_samples(order, {.order = SampleOrder::kTime});
            }).find("has no times to order samples by"),
            std::string::npos);
  EXPECT_EQ(message_of([] { sample_builder_from_name("block"); }),
            "unknown sample builder 'block'; use blocks, requests, last or anchors");
}

}  // namespace
}  // namespace turbogr::data
