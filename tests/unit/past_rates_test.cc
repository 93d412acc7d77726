// Rates of earlier events: against counting plainly, and what no event may know.
#include "turbogr/data/samples/past_rates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/samples/sample_batch.h"

namespace turbogr::data {
namespace {

using test::message_of;
using test::TemporaryFolder;

// Users, items and tabs are numbered as they come in a store: 0, 1, ...; signals: click 1, like 2.
struct Row {
  std::int64_t user, item, time, tab;
  std::uint32_t signals;
};

// Of few seconds, so that many events of different users and some of one user share a time.
std::vector<Row> random_rows() {
  std::vector<Row> rows;
  for (std::int64_t user = 0; user < 9; ++user) {
    const std::size_t first = rows.size();
    for (std::int64_t i = 0; i < 8 + user; ++i) {
      const auto bits = philox(3, static_cast<std::uint64_t>(user), static_cast<std::uint64_t>(i));
      // Every user begins with each tab, so that codes are numbers plus one.
      rows.push_back({user, bits[0] % 5, bits[1] % 40, i < 2 ? i : bits[2] % 2, bits[3] % 4});
    }
    std::sort(rows.begin() + static_cast<std::ptrdiff_t>(first), rows.end(),
              [](const Row& a, const Row& b) { return a.time < b.time; });
  }
  return rows;
}

class MadeStore {
 public:
  explicit MadeStore(const std::vector<Row>& rows, bool times = true) {
    {
      std::ofstream log(folder_.path() / "log.csv");
      log << "user_id,item_id,timestamp,tab,click,like\n";
      for (const Row& row : rows) {
        log << row.user << "," << row.item << "," << row.time << "," << row.tab << ","
            << (row.signals & 1) << "," << (row.signals >> 1) << "\n";
      }
    }
    PrepareOptions options;
    options.inputs = {(folder_.path() / "log.csv").string()};
    options.out = (folder_.path() / "store").string();
    options.columns.signals = {"click", "like"};
    options.columns.features = {"tab"};
    if (!times) options.columns.time = "none";
    prepare(options);
    store_ = std::make_unique<Store>(folder_.path() / "store");
  }
  const Store& operator*() const { return *store_; }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<Store> store_;
};

struct Case {
  std::string holdout = "time:20,30";
  bool before_split = false;
  std::vector<std::string> keys = {"item"};
  std::uint32_t signals = 2;
  double prior = 3;
  std::int64_t delay = 0;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* holdout : {"time:20,30", "time:25", "last:20%,30%", "test", "validation_test"}) {
    for (const bool before_split : {false, true}) {
      all.push_back({.holdout = holdout, .before_split = before_split});
      all.push_back({.holdout = holdout, .before_split = before_split, .delay = 4});
    }
  }
  for (const char* key : {"user", "event.tab", "clock.hour"}) {
    all.push_back({.keys = {key}, .signals = 3});
  }
  all.push_back({.keys = {"user", "event.tab"}});
  all.push_back({.keys = {"item", "event.tab", "user"}, .signals = 1, .delay = 1});
  return all;
}

PastRates rates_of(const Store& store, const Case& c) {
  const EventOrder order(store, Holdout(c.holdout), /*targets=*/2, c.before_split);
  PastRateOptions options = {.signals = c.signals, .prior = c.prior, .delay = c.delay};
  for (const std::string& key : c.keys) options.keys.push_back(parse_source(store, key));
  return {store, order, options};
}

// Which split each event is in, and the time of its user's first event of that split.
struct Place {
  Split split;
  std::int64_t split_begin;
};
std::vector<Place> places(const Store& store, const Case& c) {
  std::vector<Place> places(static_cast<std::size_t>(store.num_events()));
  const Holdout holdout(c.holdout);
  for (std::int64_t user = 0; user < store.num_users(); ++user) {
    const Store::UserEvents own = store.events_of(user);
    const auto times = store.times().subspan(static_cast<std::size_t>(own.first),
                                             static_cast<std::size_t>(own.count));
    for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
      const EventRange range = holdout.targets_of(split, own.count, times, store.time_unit(), 2);
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        places[static_cast<std::size_t>(own.first + i)] = {
            split, times[static_cast<std::size_t>(range.begin)]};
      }
    }
  }
  return places;
}

double log_odds(double share) { return std::log(share / (1 - share)); }

// Of the rows that `counts` says yes to.
template <class Counts>
float plain_rate(const std::vector<Row>& rows, const Case& c, const Row& at, const Counts& counts) {
  double all = 0, all_positive = 0, own = 0, own_positive = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!counts(i)) continue;
    const double positive = (rows[i].signals & c.signals) != 0 ? 1 : 0;
    all += 1;
    all_positive += positive;
    const bool same = std::all_of(c.keys.begin(), c.keys.end(), [&](const std::string& key) {
      return key == "user"        ? rows[i].user == at.user
             : key == "item"      ? rows[i].item == at.item
             : key == "event.tab" ? rows[i].tab == at.tab
                                  : true;  // all in one hour
    });
    if (!same) continue;
    own += 1;
    own_positive += positive;
  }
  if (own == 0) return NAN;
  const double mean = (all_positive + 0.5) / (all + 1);
  return static_cast<float>(log_odds((own_positive + c.prior * mean) / (own + c.prior)) -
                            log_odds(mean));
}

void expect_same(float value, float want, const std::string& what) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(value)) << what << ": " << value;
  } else {
    EXPECT_NEAR(value, want, 1e-6) << what;
  }
}

TEST(PastRates, AreWhatCountingEarlierEventsGives) {
  const std::vector<Row> rows = random_rows();
  const MadeStore made(rows);
  for (const Case& c : cases()) {
    const PastRates rates = rates_of(*made, c);
    const std::vector<Place> place = places(*made, c);
    int there = 0;
    for (std::size_t e = 0; e < rows.size(); ++e) {
      const Split own = place[e].split;
      const bool kept_back = c.before_split && own != Split::kTrain;
      const float want = plain_rate(rows, c, rows[e], [&](std::size_t i) {
        const bool early = rows[i].time < rows[e].time - c.delay;
        const bool before = !kept_back || rows[i].time < place[e].split_begin;
        return early && before && (kept_back ? place[i].split < own : place[i].split <= own);
      });
      expect_same(rates.of(static_cast<std::int64_t>(e)), want,
                  c.holdout + " " + c.keys[0] + " " + std::to_string(e));
      there += std::isnan(want) ? 0 : 1;
    }
    EXPECT_GT(there, 20) << c.holdout << " " << c.keys[0];
  }
}

TEST(PastRates, NoEventKnowsItsOwnLabelNorOneOfItsTimeOrLater) {
  const std::vector<Row> rows = random_rows();
  const MadeStore made(rows);
  for (std::size_t flipped = 0; flipped < rows.size(); flipped += 5) {
    std::vector<Row> others = rows;
    others[flipped].signals ^= 3;
    const MadeStore changed(others);
    for (const Case& c : cases()) {
      const PastRates was = rates_of(*made, c), is = rates_of(*changed, c);
      const std::vector<Place> place = places(*made, c);
      for (std::size_t e = 0; e < rows.size(); ++e) {
        const bool later = rows[e].time > rows[flipped].time;
        const bool hidden = place[flipped].split > place[e].split ||
                            (c.before_split && place[flipped].split == place[e].split &&
                             place[e].split != Split::kTrain);
        if (later && !hidden) continue;
        const auto event = static_cast<std::int64_t>(e);
        expect_same(is.of(event), was.of(event), c.holdout + " " + c.keys[0]);
      }
    }
  }
}

TEST(PastRates, OfWhatHasNotHappenedAreThoseOfAllThatCameBefore) {
  const std::vector<Row> rows = random_rows();
  const MadeStore made(rows);
  for (const Case& c : {Case{}, Case{.before_split = true, .delay = 4}, Case{.keys = {"user"}},
                        Case{.keys = {"item", "user"}}}) {
    const PastRates rates = rates_of(*made, c);
    // Back and forth, and the same one twice.
    for (const std::int64_t before : {100, 20, 20, 31, 0, 1000}) {
      for (std::int64_t item = 0; item < 5; ++item) {
        const Row at = {.user = 3, .item = item, .time = before, .tab = 0, .signals = 0};
        const float want =
            plain_rate(rows, c, at, [&](std::size_t i) { return rows[i].time < before - c.delay; });
        expect_same(rates.at({.user = 3, .item = item, .before = before}), want, c.keys[0]);
      }
    }
    const Row at = {.user = 3, .item = 2, .time = 0, .tab = 0, .signals = 0};
    expect_same(rates.at({.user = 3, .item = 2}),
                plain_rate(rows, c, at, [](std::size_t) { return true; }), "all there is");
    EXPECT_TRUE(std::isnan(rates.at({.user = -1, .item = -1}))) << "nobody and nothing";
  }
}

TEST(PastRates, AStoreWithoutTimesHasNone) {
  const MadeStore made(random_rows(), /*times=*/false);
  EXPECT_NE(message_of([&] { rates_of(*made, {.holdout = "test"}); }).find("has no times"),
            std::string::npos);
}

// Item 0 is liked by user 0, shown to user 1 and once more to user 0.
TEST(PastRates, ABatchHoldsThemAsARowWithAFactorAndAnother) {
  const MadeStore made({{0, 0, 1, 0, 2}, {0, 0, 3, 0, 0}, {1, 1, 1, 0, 0}, {1, 0, 2, 0, 0}});
  const Store& store = *made;
  const Holdout holdout("time:10");
  const SampleFeature item = {.name = "item", .keys = {parse_source(store, "item")}};
  SampleFeature likes = {.name = "likes", .keys = item.keys, .scale = NumberScale{}};
  likes.rates = std::make_shared<PastRates>(
      store, EventOrder(store, holdout, 1, false),
      PastRateOptions{.keys = item.keys, .signals = 2, .prior = 2, .delay = 0});
  EXPECT_EQ(likes.rows(), 3);
  const SampleLayout layout = {
      .prefix = {},
      .items = {item, likes},
      .tasks = {{.name = "like", .signals = 2, .base = {likes.rates, likes.rates}},
                {.name = "click", .signals = 1}},
      .action_bits = {}};
  const SampleOptions options = {.holdout = holdout, .builder = SampleBuilder::kRequests};
  const Samples samples = make_samples(store, options);
  const SampleCollator collator(store, options, layout);
  using Ids = std::vector<std::int64_t>;
  const auto expect = [](const SampleIds& given, const Ids& ids,
                         const std::vector<float>& weights) {
    EXPECT_EQ(given.ids, ids);
    ASSERT_EQ(given.weights.size(), weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_NEAR(given.weights[i], weights[i], 1e-4) << i;
    }
  };
  // What logits start from: of likes the rate twice, nothing where it is not known.
  const auto expect_bases = [](const SampleBatch& batch, const std::vector<float>& rates) {
    ASSERT_EQ(batch.bases.size(), 2 * rates.size());
    for (std::size_t i = 0; i < rates.size(); ++i) {
      EXPECT_NEAR(batch.bases[2 * i], 2 * rates[i], 2e-4) << i;
      EXPECT_EQ(batch.bases[2 * i + 1], 0) << i;
    }
  };
  SampleBatch batch;
  // 1 of 2 events of the item, 1 of 3 in all: (1 + 2 * .375) / (2 + 2) beside 1.5 / 4.
  collator.collate(samples, std::vector<std::uint32_t>{1}, batch);
  expect(batch.items[1], {0, 1, 2}, {1, 0.2595f, 1});
  EXPECT_EQ(batch.items[1].offsets, (Ids{0, 1, 3}));
  expect_bases(batch, {0.2595f});
  collator.collate(samples, std::vector<std::uint32_t>{0, 1}, batch);
  expect_bases(batch, {0, 0.2595f});
  // After all: 1 of 3, and 0 of 1, of 4 in all. At second 2: 1 of 1, of 2 in all.
  const SampleRequest newest = {.user = 0, .items = {0, 1}};
  collator.collate({&newest, 1}, batch);
  expect(batch.items[1], {0, 1, 2, 1, 2, 1, 2}, {1, 0.2595f, 1, 0.0935f, 1, -0.5390f, 1});
  expect_bases(batch, {0.0935f, -0.5390f});
  const SampleRequest earlier = {.user = 0, .seconds = 2, .has_time = true, .items = {0}};
  collator.collate({&earlier, 1}, batch);
  expect(batch.items[1], {0, 1, 2}, {1, 0.6931f, 1});
}

}  // namespace
}  // namespace turbogr::data
