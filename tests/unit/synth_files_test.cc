#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/store.h"
#include "turbogr/data/synth.h"

namespace turbogr::data {
namespace {

using test::message_of;
using test::read_file;
using test::TemporaryFolder;

constexpr const char* kLogs[] = {
    "log_standard_4_08_to_4_21_27k_part1.csv", "log_standard_4_08_to_4_21_27k_part2.csv",
    "log_standard_4_22_to_5_08_27k_part1.csv", "log_standard_4_22_to_5_08_27k_part2.csv"};

std::map<std::string, std::string> bytes_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_file(entry.path());
  }
  return files;
}

TEST(SynthFiles, AreTheSameForAnyNumberOfThreads) {
  TemporaryFolder folder;
  const SynthWorld world({.users = 40, .mean_length = 300, .seed = 5});
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    write_synth_store(world, pool, folder / ("store" + std::to_string(threads)));
    write_synth_csv(world, pool, folder / ("csv" + std::to_string(threads)));
  }
  for (const char* kind : {"store", "csv"}) {
    const auto one = bytes_of(folder / (std::string(kind) + "1"));
    EXPECT_GE(one.size(), 4u);
    EXPECT_EQ(one, bytes_of(folder / (std::string(kind) + "2")));
    EXPECT_EQ(one, bytes_of(folder / (std::string(kind) + "3")));
  }
}

TEST(SynthFiles, StoreHoldsTheWorldWithTheItemsThatAppear) {
  TemporaryFolder folder;
  const SynthWorld world({.users = 30, .mean_length = 100});
  ThreadPool pool(2);
  std::int64_t done = 0;
  write_synth_store(world, pool, folder / "store",
                    {.progress = [&](std::int64_t events) { done = events; }});
  EXPECT_EQ(done, world.num_events());
  const Store store(folder / "store");
  store.verify();
  EXPECT_EQ(store.num_users(), 30);
  EXPECT_EQ(store.num_events(), world.num_events());
  EXPECT_LT(store.num_items(), world.catalogue().num_items());
  std::vector<int> met(static_cast<std::size_t>(store.num_items()));
  SynthHistory history;
  for (std::int64_t user = 0; user < 30; ++user) {
    world.generate(user, history);
    const std::int64_t begin = store.offsets()[static_cast<std::size_t>(user)];
    std::vector<std::uint32_t> signals(history.items.size());
    store.read_signals(begin, signals);
    for (std::size_t i = 0; i < history.items.size(); ++i) {
      const std::int32_t item = store.items32()[static_cast<std::size_t>(begin) + i];
      met[static_cast<std::size_t>(item)] = 1;
      ASSERT_EQ(store.item_ids().integer(item), history.items[i]);
      ASSERT_EQ(store.times()[static_cast<std::size_t>(begin) + i], history.times[i]);
      ASSERT_EQ(signals[i], history.signals[i]);
    }
  }
  EXPECT_EQ(std::count(met.begin(), met.end(), 0), 0);

  EXPECT_NE(message_of([&] { write_synth_store(world, pool, folder / "store"); }), "");
  write_synth_store(world, pool, folder / "store", {.overwrite = true});
}

struct Row {
  std::int64_t time;
  std::int64_t item;
  std::uint32_t signals;
};

TEST(SynthFiles, LogsHoldTheStoresEventsInKuairandsFormat) {
  TemporaryFolder folder;
  const SynthWorld world({.users = 25, .mean_length = 400});
  ThreadPool pool(2);
  write_synth_csv(world, pool, folder / "csv");
  write_synth_store(world, pool, folder / "store");

  std::map<std::int64_t, std::vector<Row>> users;
  for (const std::string name : kLogs) {
    std::istringstream in(read_file(folder / "csv" / name));
    std::string line;
    std::getline(in, line);
    EXPECT_EQ(line,
              "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,"
              "is_forward,is_hate,long_view,play_time_ms,duration_ms,profile_stay_time,"
              "comment_stay_time,is_profile_enter,is_rand,tab");
    std::set<std::int64_t> in_file;
    while (std::getline(in, line)) {
      std::vector<std::int64_t> cells;
      std::istringstream text(line);
      for (std::string cell; std::getline(text, cell, ',');) cells.push_back(std::stoll(cell));
      ASSERT_EQ(cells.size(), 19u);
      const bool early = name.find("4_08") != std::string::npos;
      EXPECT_GE(cells[2], early ? 20220408 : 20220422);
      EXPECT_LE(cells[2], early ? 20220421 : 20220508);
      const std::int64_t local_hours = (cells[4] + 8 * 3600000) / 3600000;
      EXPECT_EQ(cells[3], local_hours % 24 * 100);
      std::uint32_t signals = 0;
      for (std::size_t bit = 0; bit < 7; ++bit)
        signals |= static_cast<std::uint32_t>(cells[5 + bit] << bit);
      signals |= static_cast<std::uint32_t>(cells[16] << 7);
      EXPECT_LE(cells[11], cells[5]);  // a long view is a click
      EXPECT_GE(cells[13], cells[11] == 1 ? cells[12] / 2 : 0);
      users[cells[0]].push_back({cells[4], cells[1], signals});
      in_file.insert(cells[0]);
    }
    EXPECT_GE(in_file.size(), 20u) << name;
  }

  const Store store(folder / "store");
  ASSERT_EQ(users.size(), 25u);
  for (auto& [user, rows] : users) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.time < b.time; });
    const auto begin = static_cast<std::size_t>(store.offsets()[static_cast<std::size_t>(user)]);
    std::vector<std::uint32_t> signals(rows.size());
    store.read_signals(static_cast<std::int64_t>(begin), signals);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(store.times()[begin + i], rows[i].time);
      ASSERT_EQ(store.item_ids().integer(store.items32()[begin + i]), rows[i].item);
      ASSERT_EQ(signals[i], rows[i].signals);
    }
  }
  EXPECT_NE(message_of([&] { write_synth_csv(world, pool, folder / "csv"); }).find("exists"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              write_synth_csv(SynthWorld({.like = "movielens", .users = 3}), pool, folder / "x");
            }).find("does not fit"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::data
