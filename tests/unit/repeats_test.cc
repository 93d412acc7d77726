#include "turbogr/data/repeats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/stores.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/id_map.h"
#include "turbogr/data/store_writer.h"
#include "turbogr/data/target_counts.h"

namespace turbogr::data {
namespace {

using Ints = std::vector<std::int64_t>;

TEST(Repeats, AreItemsThatTheSameUserHadMet) {
  const test::TemporaryFolder folder;
  StoreWriter writer(folder / "s", {.time_unit = TimeUnit::kNone, .num_items = 5});
  for (const Ints& items : {Ints{0, 1, 0, 1}, Ints{0, 1, 2}, Ints{}, Ints{4, 4}, Ints{3, 3, 0}}) {
    writer.add_user({.items = items});
  }
  writer.finish();
  const Store store(folder / "s");
  const RepeatCount all = repeated_events(store);
  EXPECT_EQ(all.events, 12);
  EXPECT_EQ(all.repeated, 4);
  EXPECT_DOUBLE_EQ(all.share(), 4.0 / 12);
  // The user with two events has no part in a split. A short window still knows all that was
  // before.
  const auto targets = [&](Split split) {
    return repeated_targets(store, make_windows(store, {.split = split, .max_length = 1}));
  };
  EXPECT_EQ(targets(Split::kTest).events, 3);
  EXPECT_EQ(targets(Split::kTest).repeated, 1);        // 1 of the first user
  EXPECT_EQ(targets(Split::kValidation).repeated, 2);  // 0 of the first, 3 of the last
  EXPECT_DOUBLE_EQ(RepeatCount().share(), 0);
}

TEST(ItemsIn, CountsInputsAndTargetsOfTheWindowsAlone) {
  const test::TemporaryFolder folder;
  test::write_numbered_store(folder / "s", {5, 2, 4});
  const Store store(folder / "s");
  const std::vector<Window> windows =
      make_windows(store, {.holdout = Holdout("test"), .max_length = 2});
  // Of 0..4 the windows hold 1..3, of 7..10 they hold 7..9: one event is held back, two tokens fit.
  EXPECT_EQ(items_in(store, windows), (std::vector<std::uint8_t>{0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0}));
  EXPECT_EQ(target_counts(store, windows), (Ints{0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0}));
}

TEST(Windows, DrawUsersOfAnEvaluationByTheSeed) {
  const test::TemporaryFolder folder;
  test::write_numbered_store(folder / "s", Ints(1000, 4));
  const Store store(folder / "s");
  const auto users = [&](Split split, std::int64_t most, std::uint64_t seed) {
    Ints drawn;
    for (const Window& window :
         make_windows(store, {.split = split, .max_users = most, .user_seed = seed})) {
      drawn.push_back(window.user);
    }
    return drawn;
  };
  const Ints some = users(Split::kValidation, 100, 1);
  ASSERT_EQ(some.size(), 100u);
  EXPECT_TRUE(std::is_sorted(some.begin(), some.end()));
  EXPECT_EQ(std::set<std::int64_t>(some.begin(), some.end()).size(), 100u);
  // The first hundred would have a mean of 50.
  double mean = 0;
  for (const std::int64_t user : some) mean += static_cast<double>(user) / 100;
  EXPECT_NEAR(mean, 500, 120);
  EXPECT_EQ(users(Split::kValidation, 100, 1), some);
  EXPECT_EQ(users(Split::kTest, 100, 1), some);
  EXPECT_NE(users(Split::kValidation, 100, 2), some);
  const Ints more = users(Split::kValidation, 200, 1);
  EXPECT_TRUE(std::includes(more.begin(), more.end(), some.begin(), some.end()));
  EXPECT_EQ(users(Split::kValidation, 0, 1).size(), 1000u);
  EXPECT_EQ(users(Split::kValidation, 5000, 1).size(), 1000u);
  EXPECT_EQ(users(Split::kTrain, 100, 1).size(), 1000u);
}

TEST(IdMap, FindsANumberByItsOnlySpelling) {
  const std::vector<std::int64_t> numbers = {-3, 0, 7};
  for (const IdMap& map : {IdMap::range(8), IdMap::integers(numbers)}) {
    for (const std::string_view text : {"00", "07", "+7", "-0", "7 ", " 7", "", "0x7", "7.0"}) {
      EXPECT_FALSE(map.find(text).has_value()) << text;
    }
    EXPECT_TRUE(map.find("0").has_value());
    EXPECT_TRUE(map.find("7").has_value());
  }
  EXPECT_EQ(IdMap::integers(numbers).find("-3"), 0);
}

}  // namespace
}  // namespace turbogr::data
