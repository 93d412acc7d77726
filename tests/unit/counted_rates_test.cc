#include "turbogr/eval/counted_rates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/store_writer.h"

namespace turbogr::eval {
namespace {

struct Event {
  std::int64_t item;
  std::uint32_t signals;
};

// Everybody's first half trains; of two tasks the second asks for either signal.
class CountedRatesTest : public ::testing::Test {
 protected:
  void write(const std::vector<std::vector<Event>>& users) {
    data::StoreSchema schema;
    schema.time_unit = data::TimeUnit::kNone;
    schema.num_items = 3;
    schema.signals = {"click", "like"};
    std::filesystem::remove_all(folder_ / "store");
    data::StoreWriter writer(folder_ / "store", schema);
    for (const std::vector<Event>& user : users) {
      std::vector<std::int64_t> items;
      std::vector<std::uint32_t> signals;
      for (const Event& event : user) {
        items.push_back(event.item);
        signals.push_back(event.signals);
      }
      writer.add_user({.items = items, .times = {}, .signals = signals, .numbers = {}});
    }
    writer.finish();
  }
  ClickFigures judge(std::size_t task, CountedBy by, GroupBy groups = GroupBy::kUser,
                     std::int64_t targets = 3, const std::vector<std::string>& where = {}) const {
    const data::Store store(folder_ / "store");
    const auto samples = [&](data::Split split) {
      return data::make_samples(
          store, {.holdout = data::Holdout("last:50%"), .split = split, .targets = targets});
    };
    data::SampleLayout layout;
    layout.tasks = {{.name = "click", .signals = 1}, {.name = "any", .signals = 3}};
    layout.tasks[0].weight = data::LabelWeight(store, where, "");
    const CountedRates rates(store, samples(data::Split::kTrain), layout);
    EXPECT_EQ(rates.names(), (std::vector<std::string>{"item", "user"}));
    return rates.judge(samples(data::Split::kTest), task, by, groups).figures();
  }
  test::TemporaryFolder folder_;
};

double cross_entropy(const std::vector<std::pair<double, bool>>& targets) {
  double bits = 0;
  for (const auto& [p, positive] : targets) bits -= std::log2(positive ? p : 1 - p);
  return bits / static_cast<double>(targets.size());
}

TEST_F(CountedRatesTest, AreRatesOfTrainingDrawnToTheMean) {
  // Trained on: item 0 twice, clicked twice; item 1 twice, once. 3 of 4 are clicks. Item 2 never.
  write({{{0, 1}, {1, 0}, {1, 0}, {0, 1}}, {{0, 1}, {1, 1}, {2, 1}, {1, 0}}});
  const double mean = 0.75;
  const double item0 = (2 + 20 * mean) / 22, item1 = (1 + 20 * mean) / 22;
  const ClickFigures by_item = judge(0, CountedBy::kItem);
  EXPECT_EQ(by_item.targets, 4);
  ASSERT_TRUE(by_item.auc);
  EXPECT_EQ(*by_item.auc, 1.0);
  EXPECT_NEAR(*by_item.normalized_entropy,
              cross_entropy({{item1, false}, {item0, true}, {mean, true}, {item1, false}}), 1e-12);
  const auto odds = [](double p) { return std::log(p / (1 - p)); };
  const auto both = [&](double item, double user) {
    return 1 / (1 + std::exp(-(odds(item) + odds(user) - odds(mean))));
  };
  const double user0 = (1 + 5 * mean) / 7, user1 = (2 + 5 * mean) / 7;
  EXPECT_NEAR(*judge(0, CountedBy::kAll).normalized_entropy,
              cross_entropy({{both(item1, user0), false},
                             {both(item0, user0), true},
                             {both(mean, user1), true},
                             {both(item1, user1), false}}),
              1e-12);
}

TEST_F(CountedRatesTest, CountAnyOfATasksSignals) {
  write({{{0, 2}, {1, 0}, {0, 3}, {1, 0}}});
  EXPECT_EQ(*judge(1, CountedBy::kItem).auc, 1.0);
}

// Item 0 is always clicked in training, item 1 never; the test asks 0 1 | 1 0 in samples of two.
// As if the events whose labels do not count were not there.
TEST_F(CountedRatesTest, LeaveOutWhatIsMasked) {
  write({{{0, 1}, {1, 0}, {1, 0}, {0, 1}}, {{0, 1}, {1, 1}, {2, 1}, {1, 0}}});
  const ClickFigures all = judge(0, CountedBy::kItem);
  write({{{0, 1}, {0, 2}, {1, 0}, {1, 0}, {0, 1}, {0, 2}}, {{0, 1}, {1, 1}, {2, 1}, {1, 0}}});
  EXPECT_NE(*judge(0, CountedBy::kItem).normalized_entropy, *all.normalized_entropy);
  const ClickFigures kept = judge(0, CountedBy::kItem, GroupBy::kUser, 3, {"!like"});
  EXPECT_EQ(kept.targets, 4);
  EXPECT_EQ(*kept.normalized_entropy, *all.normalized_entropy);
  EXPECT_EQ(*kept.auc, *all.auc);
}

TEST_F(CountedRatesTest, CompareTargetsOfAUserOrOfARequest) {
  write({{{0, 1}, {1, 0}, {0, 1}, {1, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 0}}});
  const ClickFigures users = judge(0, CountedBy::kItem, GroupBy::kUser, 2);
  EXPECT_EQ(users.groups, 1);
  EXPECT_EQ(users.gauc, 0.5);
  const ClickFigures requests = judge(0, CountedBy::kItem, GroupBy::kRequest, 2);
  EXPECT_EQ(requests.groups, 2);
  EXPECT_EQ(requests.gauc, (1.0 + 0.0) / 2);
  EXPECT_EQ(judge(0, CountedBy::kItem, GroupBy::kRequest, 1).groups, 0) << "one target each";
}

TEST_F(CountedRatesTest, AreFiniteWhereNothingWasTrainedOn) {
  write({{{0, 1}}, {{1, 0}}});  // one event each: the test's
  const ClickFigures figures = judge(0, CountedBy::kAll);
  EXPECT_EQ(*figures.auc, 0.5);
  EXPECT_TRUE(std::isfinite(*figures.normalized_entropy));
}

}  // namespace
}  // namespace turbogr::eval
