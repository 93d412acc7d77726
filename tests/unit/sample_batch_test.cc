// Features, batches and loaders of the ranking task.
#include "turbogr/data/samples/sample_batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/samples/cross_hash.h"
#include "turbogr/data/samples/sample_loader.h"

namespace turbogr::data {
namespace {

using test::message_of;
using test::TemporaryFolder;
using Ids = std::vector<std::int64_t>;

// Items 30, 31, 32 are 0, 1, 2; users 7 and 8 are 0 and 1. Tabs: home 1, search 2. Tags: crime 1,
// drama 2. Item 32 has no row.
class SampleBatchTest : public ::testing::Test {
 protected:
  SampleBatchTest() {
    const auto write = [&](const char* name, const char* text) {
      std::ofstream(folder_.path() / name) << text;
    };
    write("log.csv",
          "user_id,item_id,time_ms,tab,click,like,stay\n"
          "7,30,1000,home,1,0,2.5\n7,31,7200000,search,0,1,\n7,32,7200000,home,1,1,4\n"
          "8,31,90000000,home,0,0,1\n");
    write("items.csv", "item_id,tags,price\n30,crime|drama,3\n31,drama,100\n");
    write("users.csv", "user_id,gender\n7,F\n8,M\n");
    PrepareOptions options;
    options.inputs = {(folder_.path() / "log.csv").string()};
    options.out = (folder_.path() / "store").string();
    options.columns.signals = {"click", "like"};
    options.columns.numbers = {"stay"};
    options.columns.features = {"tab"};
    options.item_tables = {folder_.path() / "items.csv"};
    options.item_features = {"tags:bag", "price:number"};
    options.user_tables = {folder_.path() / "users.csv"};
    options.user_features = {"gender"};
    prepare(options);
    store_ = std::make_unique<Store>(folder_.path() / "store");
  }

  SampleFeature feature(const std::string& from) {
    return {.name = from, .keys = {parse_source(*store_, from)}, .most_ids = 8};
  }
  Ids ids(const SampleFeature& feature, const EventPlace& place) {
    Ids ids;
    read_ids(feature, place, ids);
    return ids;
  }
  SampleLayout layout() {
    SampleFeature cross = {
        .name = "cross",
        .keys = {parse_source(*store_, "user"), parse_source(*store_, "event.tab")},
        .cross_rows = 50};
    return {.prefix = {feature("user"), cross},
            .items = {feature("item"), feature("item.tags")},
            .tasks = {{.name = "like", .signals = 2}, {.name = "stay", .number = "stay"}},
            .action_bits = {1, 0}};
  }

  TemporaryFolder folder_;
  std::unique_ptr<Store> store_;
};

TEST_F(SampleBatchTest, SourcesGiveCodesFromOneAndZeroForTheUnknown) {
  const EventPlace third = {.user = 0, .item = 2, .event = 2, .seconds = 7200};
  const EventPlace nobody = {};
  EXPECT_EQ(ids(feature("user"), third), Ids{1});
  EXPECT_EQ(ids(feature("item"), third), Ids{3});
  EXPECT_EQ(ids(feature("user.gender"), {.user = 1}), Ids{2});
  EXPECT_EQ(ids(feature("event.tab"), {.event = 1}), Ids{2});
  EXPECT_EQ(ids(feature("clock.hour"), third), Ids{3});
  EXPECT_EQ(ids(feature("clock.day"), {.seconds = 90000}), Ids{2});
  EXPECT_EQ(ids(feature("clock.hour"), {.seconds = -1}), Ids{24});
  for (const char* source : {"user", "item", "user.gender", "event.tab", "item.price"}) {
    EXPECT_EQ(ids(feature(source), nobody), Ids{0}) << source;
  }
  EXPECT_EQ(ids(feature("item.tags"), {.item = 0}), (Ids{1, 2}));
  EXPECT_EQ(ids(feature("item.tags"), third), Ids{});
  SampleFeature one = feature("item.tags");
  one.most_ids = 1;
  EXPECT_EQ(ids(one, {.item = 0}), Ids{1});
}

TEST_F(SampleBatchTest, NumbersGoIntoBuckets) {
  SampleFeature price = feature("item.price");
  EXPECT_EQ(ids(price, {.item = 0}), Ids{3});  // log2(1 + 3) = 2
  EXPECT_EQ(ids(price, {.item = 1}), Ids{7});  // log2(101) = 6.66
  EXPECT_EQ(ids(price, {.item = 2}), Ids{0});  // no row
  price.buckets.most = 4;
  EXPECT_EQ(ids(price, {.item = 1}), Ids{4});
  price.buckets.unit = 100;
  EXPECT_EQ(ids(price, {.item = 1}), Ids{2});
  price.buckets.edges = {3, 50};
  EXPECT_EQ(ids(price, {.item = 0}), Ids{2});  // an edge begins its bucket
  EXPECT_EQ(ids(price, {.item = 1}), Ids{3});
  EXPECT_EQ(price.rows(), 4);
  EXPECT_EQ(NumberBuckets{}.bucket(-5), 1);
  EXPECT_EQ(NumberBuckets{}.bucket(std::numeric_limits<float>::infinity()), 16);
}

TEST_F(SampleBatchTest, AMisspeltSourceIsNamedWithTheNearest) {
  const std::string message = message_of([&] { parse_source(*store_, "item.tag"); });
  EXPECT_NE(message.find("has no 'item.tag'; the nearest is 'item.tags', and it has: user, item"),
            std::string::npos)
      << message;
  EXPECT_NE(
      message_of([&] { parse_source(*store_, "clock.week"); }).find("clock.hour or clock.day"),
      std::string::npos);
}

TEST_F(SampleBatchTest, ABatchHoldsIdsActionsAndLabels) {
  const SampleLayout given = layout();
  SampleOptions options = {.holdout = Holdout("time:80000000"),
                           .builder = SampleBuilder::kRequests};
  options.prefix = 2;
  const Samples samples = make_samples(*store_, options);
  ASSERT_EQ(samples.size(), 2);
  const SampleCollator collator(*store_, options, given);
  SampleBatch batch;
  collator.collate(samples, std::vector<std::uint32_t>{1, 0}, batch);
  EXPECT_EQ(batch.offsets, (Ids{0, 5, 8}));
  EXPECT_EQ(batch.num_targets, (Ids{2, 1}));
  EXPECT_EQ(batch.times, (Ids{1, 7200, 7200, 1}));
  // like is bit 0 and click bit 1 here; a target's actions are hidden.
  EXPECT_EQ(batch.actions, (std::vector<std::uint32_t>{2, 0, 0, 0}));
  EXPECT_EQ(batch.items[0].ids, (Ids{1, 2, 3, 1}));
  EXPECT_EQ(batch.items[1].ids, (Ids{1, 2, 2, 1, 2}));
  EXPECT_EQ(batch.items[1].offsets, (Ids{0, 2, 3, 3, 5}));
  EXPECT_EQ(batch.prefix[0].ids, (Ids{1, 1}));
  // The request's tab is its first target's.
  const auto cross = [](std::int64_t user, std::int64_t tab) {
    return cross_row(std::array<std::int64_t, 2>{user, tab}, 50);
  };
  EXPECT_EQ(batch.prefix[1].ids, (Ids{cross(1, 2), cross(1, 1)}));
  EXPECT_EQ(batch.labels, (std::vector<float>{1, 0, 1, 4, 0, 2.5}));
  EXPECT_EQ(batch.weights, (std::vector<float>{1, 0, 1, 1, 1, 1}));  // one stay is missing
  EXPECT_EQ(batch.target_users, (Ids{0, 0, 0}));
  EXPECT_EQ(batch.row_keys[0] >> kPositionBits, 1u);
  EXPECT_EQ(batch.row_keys[5], 0u);
}

// Events of the batch: (like, no stay), (click and like, 4), (click, 2.5); of each the two tasks.
TEST_F(SampleBatchTest, LabelsCountWhereTheirConditionsHold) {
  const auto weights = [&](const std::vector<std::string>& where, const std::string& by = "") {
    SampleLayout given = layout();
    for (SampleTask& task : given.tasks) task.weight = LabelWeight(*store_, where, by);
    SampleOptions options = {.holdout = Holdout("time:80000000"),
                             .builder = SampleBuilder::kRequests};
    options.prefix = 2;
    const Samples samples = make_samples(*store_, options);
    SampleBatch batch;
    SampleCollator(*store_, options, given)
        .collate(samples, std::vector<std::uint32_t>{1, 0}, batch);
    EXPECT_EQ(batch.labels, (std::vector<float>{1, 0, 1, 4, 0, 2.5})) << "labels stay";
    const SampleRequest asked[] = {{.user = 0, .items = {1}}};
    SampleCollator(*store_, options, given).collate(asked, batch);
    EXPECT_EQ(batch.weights, (std::vector<float>{0, 0})) << "a request has no event";
    SampleCollator(*store_, options, given)
        .collate(samples, std::vector<std::uint32_t>{1, 0}, batch);
    return batch.weights;
  };
  using Weights = std::vector<float>;
  EXPECT_EQ(weights({}), (Weights{1, 0, 1, 1, 1, 1}));
  EXPECT_EQ(weights({"click"}), (Weights{0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(weights({"!click"}), (Weights{1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(weights({"click", "!like"}), (Weights{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(weights({"stay>3"}), (Weights{0, 0, 1, 1, 0, 0})) << "a missing number passes no test";
  EXPECT_EQ(weights({"!stay>3"}), (Weights{1, 0, 0, 0, 1, 1}));
  EXPECT_EQ(weights({"stay>=2&stay<3", "click"}), (Weights{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(weights({}, "stay"), (Weights{0, 0, 4, 4, 2.5, 2.5}));
  EXPECT_EQ(weights({"like"}, "stay"), (Weights{0, 0, 4, 4, 0, 0}));
  const auto refusal = [&](const std::vector<std::string>& where, const std::string& by = "") {
    return message_of([&] { LabelWeight(*store_, where, by); });
  };
  EXPECT_EQ(refusal({"clik"}),
            "where: 'clik' is no signal and no test of a number, such as \"duration>=7\"; the "
            "nearest is 'click', and there are the signals click, like");
  EXPECT_NE(refusal({"tab==home"}).find("no test of a number"), std::string::npos);
  EXPECT_NE(refusal({"stey>3"}).find("has no numbers 'stey'"), std::string::npos);
  EXPECT_NE(refusal({"click", "!click"}).find("no event has both"), std::string::npos);
  EXPECT_NE(refusal({}, "click").find("has no numbers 'click'"), std::string::npos);
}

TEST_F(SampleBatchTest, AWeightBelowZeroIsNamedWithItsEvent) {
  std::ofstream(folder_.path() / "bad.csv")
      << "user_id,item_id,time_ms,like,worth\n7,30,1000,1,2\n7,31,2000,0,-3\n";
  PrepareOptions options;
  options.inputs = {(folder_.path() / "bad.csv").string()};
  options.out = (folder_.path() / "bad").string();
  options.columns.signals = {"like"};
  options.columns.numbers = {"worth"};
  prepare(options);
  const Store store(folder_.path() / "bad");
  EXPECT_EQ(message_of([&] { LabelWeight(store, {}, "worth"); }),
            "weight_by = \"worth\": event 1 has -3 there; a weight is a finite number that is not "
            "below 0, so prepare a column of such");
}

TEST_F(SampleBatchTest, ARequestIsJudgedAfterTheHistoryBeforeItsTime) {
  const SampleLayout given = layout();
  const SampleOptions options = {.max_history = 2};
  const SampleCollator collator(*store_, options, given);
  SampleBatch batch;
  const SampleRequest requests[] = {{.user = 0, .items = {1, 0}, .values = {{"tab", 2}}},
                                    {.user = 0, .seconds = 7200, .has_time = true, .items = {2}},
                                    {.user = -1, .items = {0}}};
  collator.collate(requests, batch);
  EXPECT_EQ(batch.num_targets, (Ids{2, 1, 1}));
  EXPECT_EQ(batch.offsets, (Ids{0, 6, 10, 13}));
  EXPECT_EQ(batch.items[0].ids, (Ids{2, 3, 2, 1, 1, 3, 1}));
  EXPECT_EQ(batch.times, (Ids{7200, 7200, 7200, 7200, 1, 7200, 0}));
  EXPECT_EQ(batch.prefix[0].ids, (Ids{1, 1, 0}));
  EXPECT_EQ(batch.prefix[1].ids[0], cross_row(std::array<std::int64_t, 2>{1, 2}, 50));
  EXPECT_EQ(batch.prefix[1].ids[1], cross_row(std::array<std::int64_t, 2>{1, 0}, 50));
  EXPECT_EQ(batch.weights, std::vector<float>(8, 0.0f));
}

// Prices are 3, 100 and none: mean 51.5, deviation 48.5.
TEST_F(SampleBatchTest, NormalisedNumbersAreTwoRowsWithFactors) {
  SampleLayout given = layout();
  SampleFeature price = feature("item.price");
  price.scale = training_scale(*store_, price.keys[0], Holdout("test"), 1);
  EXPECT_NEAR(price.scale->mean, 51.5, 1e-9);
  EXPECT_NEAR(price.scale->sd, 48.5, 1e-9);
  EXPECT_EQ(price.rows(), 3);
  given.items[1] = price;
  SampleOptions options = {.holdout = Holdout("time:80000000"),
                           .builder = SampleBuilder::kRequests};
  options.prefix = 2;
  const Samples samples = make_samples(*store_, options);
  const SampleCollator collator(*store_, options, given);
  SampleBatch batch;
  for (int round = 0; round < 2; ++round) {
    collator.collate(samples, std::vector<std::uint32_t>{1}, batch);
    EXPECT_EQ(batch.items[1].ids, (Ids{1, 2, 1, 2, 0}));
    EXPECT_EQ(batch.items[1].offsets, (Ids{0, 2, 4, 5}));
    EXPECT_EQ(batch.items[1].weights, (std::vector<float>{-1, 1, 1, 1, 1}));
    EXPECT_TRUE(batch.items[0].weights.empty());
  }
  EXPECT_EQ((NumberScale{0, 0.01}).normalised(5), 10) << "far away is ten deviations";
  EXPECT_EQ((NumberScale{0, 1}).normalised(std::numeric_limits<float>::infinity()), 10);
  EXPECT_EQ((NumberScale{0, 0.01}).normalised(-5), -10);
}

TEST_F(SampleBatchTest, TargetsMayStandAtTheTimeOfTheEventBeforeThem) {
  SampleLayout given = layout();
  given.items.push_back(feature("clock.hour"));
  SampleOptions options = {.holdout = Holdout("time:80000000"),
                           .builder = SampleBuilder::kRequests,
                           .targets_at_last_time = true};
  options.prefix = 2;
  const Samples samples = make_samples(*store_, options);
  const SampleCollator collator(*store_, options, given);
  SampleBatch batch;
  collator.collate(samples, std::vector<std::uint32_t>{1, 0}, batch);
  EXPECT_EQ(batch.times, (Ids{1, 1, 1, 1})) << "without a history: its own";
  EXPECT_EQ(batch.items[2].ids, (Ids{1, 3, 3, 1})) << "the clock is the target's own";
  const SampleRequest later[] = {{.user = 1, .seconds = 90'010, .has_time = true, .items = {0}}};
  collator.collate(later, batch);
  EXPECT_EQ(batch.times, (Ids{90'000, 90'000}));
}

TEST_F(SampleBatchTest, ALoaderGivesTheSameBatchesWithAnyThreadsAndGoesOnWhereItStood) {
  const auto options = [&](int threads) {
    SampleLoaderOptions made = {
        .samples = {.holdout = Holdout("last:1%"), .targets = 1}, .layout = layout(), .queue = {}};
    made.queue.plan.budget = BatchBudget::samples(1);
    made.queue.plan.seed = 5;
    made.queue.threads = threads;
    return made;
  };
  std::vector<Ids> want;
  SampleLoader alone(*store_, options(0));
  SampleBatch batch;
  for (int epoch = 0; epoch < 4; ++epoch) {
    while (alone.next(batch)) want.push_back(batch.items[0].ids);
  }
  ASSERT_EQ(want.size(), 8u);  // two of the first user's three; the other's only one is held back
  SampleLoader many(*store_, options(3));
  std::vector<Ids> got;
  for (int i = 0; i < 3; ++i) {
    if (!many.next(batch)) {
      ASSERT_TRUE(many.next(batch));
    }
    got.push_back(batch.items[0].ids);
  }
  SampleLoader later(*store_, options(2));
  later.restore(many.state());
  while (got.size() < want.size()) {
    if (later.next(batch)) got.push_back(batch.items[0].ids);
  }
  EXPECT_EQ(got, want);
}

// By all that came before, not by what of it a sample shows: these show nothing.
TEST_F(SampleBatchTest, ALoaderSortsByWhatCameBefore) {
  SampleLoaderOptions options = {
      .samples = {.holdout = Holdout("last:1%"), .targets = 1, .max_history = 0},
      .layout = layout(),
      .queue = {}};
  options.queue.plan.budget = BatchBudget::samples(2);
  options.queue.plan.seed = 5;
  for (const std::int64_t sort_batches : {0, 16}) {
    options.queue.plan.sort_batches = sort_batches;
    SampleLoader loader(*store_, options);
    SampleBatch batch;
    std::set<Ids> seen;
    for (int epoch = 0; epoch < 8; ++epoch) {
      while (loader.next(batch)) seen.insert(batch.items[0].ids);
    }
    EXPECT_TRUE(seen.contains(Ids{1, 2}));
    EXPECT_EQ(seen.size(), sort_batches == 0 ? 2u : 1u);
  }
}

}  // namespace
}  // namespace turbogr::data
