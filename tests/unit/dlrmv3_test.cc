// The world of raters of DLRMv3: its rules, its store, and how predictable it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/output_file.h"
#include "turbogr/data/dlrmv3/dlrmv3_store.h"
#include "turbogr/data/expected_auc.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

using test::message_of;
using test::TemporaryFolder;

const Dlrmv3Options kRaters = {.users = 40, .items = 128'000, .seed = 3};

TEST(Dlrmv3, StepsHaveTheirLengthsAndACatalogueThatGrows) {
  const Dlrmv3World world(kRaters);
  Dlrmv3History history;
  double active = 0, joined = 0, judged = 0;
  for (std::int64_t user = 0; user < world.num_users(); ++user) {
    world.generate(user, history);
    ASSERT_EQ(std::ssize(history.items), world.offset(user + 1) - world.offset(user));
    ASSERT_TRUE(std::is_sorted(history.steps.begin(), history.steps.end()));
    std::set<std::int64_t> categories;
    std::map<std::int32_t, std::int64_t> events, joining;
    for (std::size_t i = 0; i < history.items.size(); ++i) {
      const std::int32_t step = history.steps[i];
      categories.insert(world.category(history.items[i]));
      ++events[step];
      joining[step] += history.joins[i];
      // 1,000 items a category, of which the first (step + 1) % are there.
      EXPECT_LT(history.items[i] % 1000, 10 * std::max(step + 1, 1));
      EXPECT_GE(history.ratings[i], 1 - 1e-5);
      EXPECT_LE(history.ratings[i], 5 + 1e-5);
    }
    EXPECT_EQ(categories.size(), 4u);
    EXPECT_TRUE(events.contains(Dlrmv3World::kBase));
    for (const auto& [step, count] : events) {
      EXPECT_GE(joining[step], 33);
      EXPECT_EQ(count, step >= Dlrmv3World::kFirstJudged ? 2048 : joining[step]) << step;
      joined += static_cast<double>(joining[step]);
      judged += step >= Dlrmv3World::kFirstJudged ? 1 : 0;
    }
    active += static_cast<double>(events.size()) - 1;
  }
  EXPECT_NEAR(active / 4000, 0.7, 0.03);
  EXPECT_NEAR(joined / (active + 40), 100, 2);
  EXPECT_NEAR(judged / 400, 0.7, 0.08);
}

TEST(Dlrmv3, RatingsFollowItemPlaceAndStep) {
  const Dlrmv3World world(kRaters);
  std::array<double, 6> share = {};
  for (std::uint32_t item = 0; item < 20'000; ++item)
    share[world.item_rating(item)] += 1.0 / 20'000;
  EXPECT_NEAR(share[5], .2, .015);
  EXPECT_NEAR(share[4], .25, .015);
  EXPECT_NEAR(share[1], .1, .015);
  Dlrmv3History history;
  // The chance is what becomes of the events: liked ones are as many as the chances add up to.
  double expected = 0, liked = 0;
  for (std::int64_t user = 0; user < world.num_users(); ++user) {
    world.generate(user, history);
    for (std::size_t i = 0; i < history.items.size(); ++i) {
      expected += history.chances[i];
      const bool is_liked = history.ratings[i] >= Dlrmv3World::kLiked - 1e-4;
      liked += is_liked ? 1 : 0;
      if (history.chances[i] == 0) {
        EXPECT_FALSE(is_liked);
      }
      if (history.chances[i] == 1) {
        EXPECT_TRUE(is_liked);
      }
    }
  }
  EXPECT_NEAR(liked / expected, 1, 0.005);
}

TEST(Dlrmv3, BayesAucIsThatOfItsOwnChances) {
  const Dlrmv3World world(kRaters);
  const Dlrmv3World::BayesAuc auc = world.bayes_auc();
  Dlrmv3History history;
  std::vector<std::pair<float, bool>> scored;
  for (std::int64_t user = 0; user < world.num_users(); ++user) {
    world.generate(user, history);
    for (std::size_t i = 0; i < history.items.size(); ++i) {
      if (history.steps[i] < Dlrmv3World::kFirstJudged) continue;
      scored.emplace_back(history.chances[i], history.ratings[i] >= Dlrmv3World::kLiked - 1e-4);
    }
  }
  std::sort(scored.begin(), scored.end());
  double below = 0, pairs = 0, positives = 0;
  for (std::size_t i = 0; i < scored.size();) {
    double positive = 0, negative = 0;
    const float chance = scored[i].first;
    for (; i < scored.size() && scored[i].first == chance; ++i) {
      (scored[i].second ? positive : negative) += 1;
    }
    pairs += positive * (below + negative / 2);
    below += negative;
    positives += positive;
  }
  EXPECT_NEAR(auc.all, pairs / (positives * below), 0.002);
  EXPECT_GT(auc.by_request, 0.9);
  EXPECT_LT(auc.by_request, 1);
}

// The fields of a row: lists between quotes.
std::vector<std::string> fields_of(const std::string& row) {
  std::vector<std::string> fields;
  for (std::size_t at = row.find('"'); at != std::string::npos; at = row.find('"', at)) {
    const std::size_t end = row.find('"', at + 1);
    fields.push_back(row.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return fields;
}

std::vector<double> numbers_of(const std::string& field) {
  std::vector<double> numbers;
  std::istringstream in(field);
  for (std::string number; std::getline(in, number, ',');) numbers.push_back(std::stod(number));
  return numbers;
}

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Dlrmv3, FilesHaveTheBlocksOfTheOriginalAndWhereToFindThem) {
  const TemporaryFolder folder;
  const Dlrmv3World world({.users = 200, .seed = 1});
  ThreadPool two(2), one(1);
  write_dlrmv3_csv(world, two, folder / "two");
  write_dlrmv3_csv(world, one, folder / "one");
  const std::vector<std::string> offsets = lines_of(folder / "two/offset.csv");
  ASSERT_EQ(offsets.size(), 100u);
  std::map<std::int32_t, std::vector<double>> requests;
  Dlrmv3History history;
  for (std::int64_t user = 0; user < 200; ++user) {
    const auto file = static_cast<std::size_t>(user / 2);
    const std::string name = std::to_string(file) + ".csv";
    const std::string text = test::read_file(folder / "two" / name);
    EXPECT_EQ(text, test::read_file(folder / "one" / name));
    const auto at = static_cast<std::size_t>(
        numbers_of(fields_of(offsets[file]).at(0)).at(static_cast<std::size_t>(user % 2)));
    const std::vector<std::string> fields = fields_of(text.substr(at, text.find('\n', at) - at));
    ASSERT_EQ(fields.size(), 4u * 102);
    world.generate(user, history);
    std::vector<std::vector<double>> wanted(fields.size());
    for (std::size_t i = 0; i < history.items.size(); ++i) {
      const std::int32_t step = history.steps[i];
      const bool judged = step >= Dlrmv3World::kFirstJudged;
      const auto block = 4 * static_cast<std::size_t>(step + 1 + (judged ? 1 : 0));
      if (step >= 0 && wanted[block].empty()) {
        requests[step].push_back(static_cast<double>(user));
      }
      if (judged || wanted[block].size() < 32) {
        wanted[block].push_back(history.items[i]);
        wanted[block + 1].push_back(history.ratings[i]);
      }
      if (history.joins[i] == 0) continue;
      wanted[block + 2].push_back(history.items[i]);
      wanted[block + 3].push_back(history.ratings[i]);
    }
    if (user > 2 && user % 9 != 0) continue;  // enough of them
    for (std::size_t field = 0; field < fields.size(); ++field) {
      const std::vector<double> found = numbers_of(fields[field]);
      ASSERT_EQ(found.size(), wanted[field].size()) << user << " " << field;
      for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], wanted[field][i], 1e-6);
    }
  }
  const std::vector<std::string> active = lines_of(folder / "two/requests_per_ts.csv");
  const std::vector<std::string> so_far = lines_of(folder / "two/users_cumsum_per_ts.csv");
  ASSERT_EQ(active.size(), 100u);
  ASSERT_EQ(so_far.size(), 100u);
  std::vector<double> begins;
  double begin = 0;
  for (std::int32_t step = 0; step < 100; ++step) {
    const auto line = static_cast<std::size_t>(step);
    EXPECT_EQ(numbers_of(fields_of(active[line]).at(0)), requests[step]);
    const std::vector<double> counts = numbers_of(fields_of(so_far[line]).at(0));
    ASSERT_EQ(counts.size(), 100u);
    for (std::size_t file = 0; file < 100; ++file) {
      EXPECT_EQ(counts[file], std::ranges::count_if(requests[step], [&](double user) {
                  return user < static_cast<double>(2 * file + 2);
                }));
    }
    begins.push_back(begin);
    begin += static_cast<double>(active[line].size()) + 1;
  }
  const std::vector<std::string> places = lines_of(folder / "two/requests_per_ts_offset.csv");
  EXPECT_EQ(numbers_of(fields_of(places.at(0)).at(0)), begins);
  // Another number of users is one file.
  write_dlrmv3_csv(Dlrmv3World({.users = 3, .seed = 1}), one, folder / "few");
  EXPECT_EQ(lines_of(folder / "few/0.csv").size(), 3u);
  EXPECT_EQ(lines_of(folder / "few/offset.csv").size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(folder / "few/1.csv"));
}

TEST(Dlrmv3, AStoreHoldsRatingsCategoriesAndStepsAsTimes) {
  const TemporaryFolder folder;
  const Dlrmv3World world({.users = 3, .seed = 1});
  ThreadPool one(1), three(3);
  write_dlrmv3_store(world, one, folder / "a", {.numbers = true});
  write_dlrmv3_store(world, three, folder / "b", {.numbers = true});
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "a")) {
    if (!entry.is_regular_file()) continue;
    const auto same = folder / "b" / std::filesystem::relative(entry.path(), folder / "a");
    EXPECT_EQ(read_file(entry.path().string()), read_file(same.string())) << entry.path();
  }
  const Store store(folder / "a");
  EXPECT_EQ(store.num_events(), world.num_events());
  EXPECT_EQ(store.time_unit(), TimeUnit::kMilliseconds);
  EXPECT_EQ(store.times()[0], 0);
  EXPECT_EQ(store.feature(FeatureOwner::kItem, "category").about.values, 128);
  std::vector<std::uint32_t> signals(static_cast<std::size_t>(store.num_events()));
  store.read_signals(0, signals);
  const auto ratings = store.numbers("rating");
  for (std::size_t i = 0; i < signals.size(); ++i) {
    const int whole = static_cast<int>(ratings[i] + 1e-4);
    EXPECT_EQ(signals[i] & 31u, 1u << (whole - 1)) << ratings[i];
    EXPECT_EQ((signals[i] & 32u) != 0, ratings[i] > 3.4999) << ratings[i];
  }
}

TEST(Dlrmv3, WorldsThatCannotBeAreRefused) {
  EXPECT_NE(message_of([] { Dlrmv3World({.users = 0}); }).find("from 1 to"), std::string::npos);
  EXPECT_NE(message_of([] { Dlrmv3World({.users = 1, .items = 100}); }).find("12800 to"),
            std::string::npos);
}

TEST(ExpectedAuc, KnowsTiesAndCertainty) {
  EXPECT_DOUBLE_EQ(expected_auc({0.5, 0.5}), 0.5);
  EXPECT_DOUBLE_EQ(expected_auc({0, 1, 1}), 1);
  EXPECT_TRUE(std::isnan(expected_auc({1, 1})));
}

}  // namespace
}  // namespace turbogr::data
