#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/core_filter.h"
#include "turbogr/data/event_sort.h"
#include "turbogr/data/id_collector.h"
#include "turbogr/data/id_lookup.h"

namespace turbogr::data {
namespace {

using test::message_of;
using test::TemporaryFolder;

struct Row {
  std::int64_t user, item, time;
  bool operator==(const Row&) const = default;
};

std::vector<Row> random_rows(std::size_t count, std::uint64_t users, std::int64_t span) {
  PhiloxStream random(count);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < count; ++i) {
    rows.push_back(
        {static_cast<std::int64_t>(random.below(users)), static_cast<std::int64_t>(i),
         static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(span))) - span / 2});
  }
  return rows;
}

std::vector<Row> sorted_by(ThreadPool& pool, const std::filesystem::path& file,
                           const std::vector<Row>& rows, std::size_t capacity,
                           const SortRange& range, std::size_t* runs) {
  EventSort sort(pool, {}, capacity, range, file, 1000);
  for (const Row& row : rows) {
    std::byte* to = sort.add();
    store_field(to, RowLayout::kUser, row.user);
    store_field(to, RowLayout::kItem, row.item);
    store_field(to, RowLayout::kTime, row.time);
  }
  std::vector<Row> sorted;
  sort.drain([&](const std::byte* row) {
    sorted.push_back({load_field<std::int64_t>(row, RowLayout::kUser),
                      load_field<std::int64_t>(row, RowLayout::kItem),
                      load_field<std::int64_t>(row, RowLayout::kTime)});
  });
  *runs = sort.num_runs();
  EXPECT_FALSE(std::filesystem::exists(file));
  return sorted;
}

std::vector<Row> stably_sorted(std::vector<Row> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.user, a.time) < std::pair(b.user, b.time);
  });
  return rows;
}

TEST(EventSort, IsAStableSortWhateverTheMemory) {
  TemporaryFolder folder;
  ThreadPool pool(2);
  // A narrow key goes by radix, a span of 2^60 by comparison.
  for (const std::int64_t span : {std::int64_t{50}, std::int64_t{1} << 60}) {
    const std::vector<Row> rows = random_rows(5000, 37, span);
    const std::vector<Row> wanted = stably_sorted(rows);
    const SortRange range{.num_users = 37, .first_time = -span / 2, .last_time = span / 2};
    for (const std::size_t capacity : {1u, 7u, 1000u, 2500u, 5000u, 9000u}) {
      std::size_t runs = 0;
      EXPECT_EQ(sorted_by(pool, folder / "runs", rows, capacity, range, &runs), wanted) << capacity;
      EXPECT_EQ(runs, capacity >= 5000 ? 0 : (5000 + capacity - 1) / capacity);
    }
  }
}

// More rows than one thread's piece, and more users than buckets.
TEST(EventSort, IsAStableSortWhateverTheThreads) {
  TemporaryFolder folder;
  for (const std::uint64_t users : {1u, 37u, 5000u}) {
    const std::vector<Row> rows = random_rows(300'000, users, 50);
    const std::vector<Row> wanted = stably_sorted(rows);
    const SortRange range{
        .num_users = static_cast<std::int64_t>(users), .first_time = -25, .last_time = 25};
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      std::size_t runs = 0;
      EXPECT_EQ(sorted_by(pool, folder / "runs", rows, 300'000, range, &runs), wanted)
          << users << " users, " << threads << " threads";
      EXPECT_EQ(sorted_by(pool, folder / "runs", wanted, 300'000, range, &runs), wanted);
    }
  }
}

TEST(EventSort, TakesNothing) {
  TemporaryFolder folder;
  ThreadPool pool(2);
  std::size_t runs = 1;
  EXPECT_TRUE(sorted_by(pool, folder / "runs", {}, 10, {}, &runs).empty());
  EXPECT_EQ(runs, 0u);
}

TEST(IdCollector, NumbersIntegersByValueWhateverTheMemory) {
  TemporaryFolder folder;
  PhiloxStream random(3);
  std::vector<std::int64_t> ids = {0, -1, INT64_MAX, -INT64_MAX, 5, 4096, 1 << 20};
  for (int i = 0; i < 3000; ++i) {
    ids.push_back(static_cast<std::int64_t>(random.below(5000)));
    ids.push_back(static_cast<std::int64_t>(random.next_u64() >> 1) - (std::int64_t{1} << 62));
    ids.push_back(static_cast<std::int64_t>(random.below(200000)) - 100000);
  }
  const std::set<std::int64_t> distinct(ids.begin(), ids.end());
  for (const std::size_t budget : {std::size_t{1}, std::size_t{1} << 15, std::size_t{1} << 24}) {
    IdCollector collector(IdKind::kInt64, folder / "ids", budget);
    for (const std::int64_t id : ids) collector.add_integer(id);
    const SortedIds sorted = collector.finish();
    ASSERT_EQ(sorted.count, static_cast<std::int64_t>(distinct.size()));
    IdStream stream(sorted);
    IdLookup lookup(sorted, budget);
    std::map<std::int64_t, std::int64_t> found;
    for (std::int64_t window = 0; window < lookup.num_windows(); ++window) {
      lookup.load(window);
      for (const std::int64_t id : distinct) {
        if (const std::int64_t index = lookup.find(id); index >= 0) found[id] = index;
      }
    }
    std::int64_t index = 0;
    for (const std::int64_t id : distinct) {
      ASSERT_EQ(stream.next_integer(), id);
      ASSERT_EQ(found.at(id), index++);
    }
    if (budget == 1) {
      EXPECT_GT(lookup.num_windows(), 1);
    }
  }
}

TEST(IdCollector, NumbersStringsByByteWhateverTheMemory) {
  TemporaryFolder folder;
  PhiloxStream random(4);
  std::vector<std::string> ids = {"B", "a", "\xff", "a b", std::string(5000, 'x')};
  for (int i = 0; i < 5000; ++i) ids.push_back("id" + std::to_string(random.below(2000)));
  const std::set<std::string> distinct(ids.begin(), ids.end());
  for (const std::size_t budget : {std::size_t{1}, std::size_t{1} << 24}) {
    IdCollector collector(IdKind::kString, folder / "ids", budget);
    std::map<std::string, std::int64_t> keys;
    for (const std::string& id : ids) keys[id] = collector.add_string(id);
    const SortedIds sorted = collector.finish();
    ASSERT_EQ(sorted.count, static_cast<std::int64_t>(distinct.size()));
    IdStream stream(sorted);
    IdLookup lookup(sorted, std::size_t{1} << 24);
    std::int64_t index = 0;
    for (const std::string& id : distinct) {
      ASSERT_EQ(stream.next_string(), id);
      ASSERT_EQ(lookup.find(keys.at(id)), index++);
    }
  }
}

TEST(IdLookup, RefusesTwoIdsWithOneKey) {
  TemporaryFolder folder;
  SortedIds ids{.kind = IdKind::kString, .count = 2, .num_listed = 2};
  ids.keys_file = folder / "keys";
  FileWriter keys(ids.keys_file);
  keys.append_value(std::int64_t{77});
  keys.append_value(std::int64_t{77});
  keys.close(false);
  const std::string text = message_of([&] { IdLookup(ids, 1 << 20); });
  EXPECT_NE(text.find("share a hash"), std::string::npos) << text;
}

TEST(CoreFilter, FindsTheCoreThatOneByOneRemovalFinds) {
  PhiloxStream random(5);
  for (int round = 0; round < 20; ++round) {
    constexpr std::int64_t kUsers = 70;
    constexpr std::int64_t kItems = 90;
    std::vector<std::uint32_t> users, items;
    for (int i = 0; i < 400; ++i) {
      users.push_back(static_cast<std::uint32_t>(random.below(kUsers)));
      items.push_back(static_cast<std::uint32_t>(random.below(kItems)));
    }
    const std::int64_t min_user = round % 7;
    const std::int64_t min_item = (round * 3) % 6;
    std::set<std::uint32_t> good_users(users.begin(), users.end());
    std::set<std::uint32_t> good_items(items.begin(), items.end());
    for (bool changed = true; changed;) {
      changed = false;
      std::map<std::uint32_t, std::int64_t> user_count, item_count;
      for (std::size_t i = 0; i < users.size(); ++i) {
        if (good_users.count(users[i]) == 0 || good_items.count(items[i]) == 0) continue;
        ++user_count[users[i]];
        ++item_count[items[i]];
      }
      for (auto it = good_users.begin(); it != good_users.end();) {
        const bool bad = user_count[*it] < std::max<std::int64_t>(min_user, 1);
        changed = changed || bad;
        it = bad ? good_users.erase(it) : std::next(it);
      }
      for (auto it = good_items.begin(); it != good_items.end();) {
        const bool bad = item_count[*it] < std::max<std::int64_t>(min_item, 1);
        changed = changed || bad;
        it = bad ? good_items.erase(it) : std::next(it);
      }
    }
    for (const std::size_t budget : {std::size_t{1}, std::size_t{100}, std::size_t{1} << 20}) {
      const CoreFilter core = find_core([&](const PairBlock& block) { block(users, items); },
                                        kUsers, kItems, min_user, min_item, budget);
      ASSERT_EQ(core.users.count(), static_cast<std::int64_t>(good_users.size()));
      ASSERT_EQ(core.items.count(), static_cast<std::int64_t>(good_items.size()));
      std::int64_t next = 0;
      for (std::uint32_t user = 0; user < kUsers; ++user) {
        ASSERT_EQ(core.users.has(user), good_users.count(user) == 1);
        if (core.users.has(user)) {
          ASSERT_EQ(core.users.index_of(user), next++);
        }
      }
    }
  }
}

}  // namespace
}  // namespace turbogr::data
