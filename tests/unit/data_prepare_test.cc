#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/compress.h"
#include "tests/support/histories.h"
#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;
using test::histories_of;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;

PrepareReport prepare_with(const PrepareOptions& options) {
  PrepareReport report = prepare(options);
  Store(options.out).verify();
  return report;
}

std::vector<std::string> prepared(const PrepareOptions& options) {
  prepare_with(options);
  return histories_of(Store(options.out));
}

void expect_same_bytes(const fs::path& a, const fs::path& b) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(a)) {
    ++files;
    EXPECT_EQ(read_file(entry.path()), read_file(b / entry.path().filename())) << entry.path();
  }
  EXPECT_EQ(files, std::distance(fs::directory_iterator(b), fs::directory_iterator()));
}

std::string random_log(int rows, bool strings, std::uint64_t seed) {
  PhiloxStream random(seed);
  std::string text = "user_id,item_id,timestamp,is_click,rating\n";
  for (int i = 0; i < rows; ++i) {
    const std::string prefix = strings ? "x" : "";
    const double skew = random.uniform();
    text += fmt::format("{0}{1},{0}{2},{3},{4},{5}\n", prefix, random.below(200) * 1'000'000'007,
                        static_cast<int>(skew * skew * 400), 1'600'000'000 + random.below(50),
                        random.below(2), random.below(5));
  }
  return text;
}

TEST(Prepare, SortsByUserTimeAndInputOrder) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv",
                              "user_id,item_id,timestamp\n"
                              "9,100,20\n10,7,5\n9,50,10\n9,60,20\n10,8,5\n9,55,10\n");
  EXPECT_EQ(prepared({.inputs = {log}, .out = folder / "s"}),
            (std::vector<std::string>{"9: 50@10 55@10 100@20 60@20", "10: 7@5 8@5"}));
  const Store store(folder / "s");
  EXPECT_EQ(store.time_unit(), TimeUnit::kSeconds);
  EXPECT_EQ(store.item_ids().integer(0), 7);
  EXPECT_EQ(store.item_ids().find(std::int64_t{100}), 5);
}

TEST(Prepare, GivesTheSameBytesInLittleAndMuchMemory) {
  TemporaryFolder folder;
  for (const bool strings : {false, true}) {
    for (const std::int64_t minimum : {0, 6}) {
      const std::string tag = fmt::format("{}{}", strings ? "s" : "i", minimum);
      PrepareOptions options{
          .inputs = {write_file(folder / (tag + ".csv"), random_log(3000, strings, 11))},
          .min_user = minimum,
          .min_item = minimum};
      options.out = folder / (tag + "-much");
      EXPECT_EQ(prepare_with(options).sorted_runs, 0u);
      for (const std::size_t kilobytes : {8u, 100u}) {
        options.out = folder / fmt::format("{}-{}", tag, kilobytes);
        options.memory_bytes = kilobytes << 10;
        EXPECT_GT(prepare_with(options).sorted_runs, 1u);
        expect_same_bytes(folder / (tag + "-much"), options.out);
      }
    }
  }
}

TEST(Prepare, KeepsTheCoreOnly) {
  TemporaryFolder folder;
  // User 3 has two events, but one of its items goes with user 4, so the round after it goes too.
  const auto log = write_file(folder / "log.csv", "user,item\n1,1\n1,2\n2,1\n2,2\n3,1\n3,5\n4,5\n");
  PrepareOptions options{.inputs = {log}, .out = folder / "s", .min_user = 2, .min_item = 2};
  const PrepareReport report = prepare_with(options);
  EXPECT_EQ(report.filtered, 3);
  EXPECT_EQ(histories_of(Store(options.out)), (std::vector<std::string>{"1: 1 2", "2: 1 2"}));
  EXPECT_EQ(Store(options.out).num_items(), 2);
  options.out = folder / "t";
  options.min_user = 9;
  EXPECT_NE(test::message_of([&] { prepare(options); }).find("no event is left"),
            std::string::npos);
  options.min_user = -1;
  EXPECT_NE(test::message_of([&] { prepare(options); }).find("negative"), std::string::npos);
  EXPECT_FALSE(fs::exists(options.out));
}

TEST(Prepare, MergesSeveralFilesOfEveryPacking) {
  TemporaryFolder folder;
  const std::string header = "user_id,item_id,timestamp\n";
  const auto one = write_file(folder / "1.csv", header + "1,10,5\n2,20,1\n");
  const auto two = write_file(folder / "2.csv.gz", test::gzip(header + "1,11,4\n2,21,1\n"));
  // The columns of a later file may stand in another order.
  const auto three =
      write_file(folder / "3.csv.zst", test::zstd("timestamp,item_id,user_id\n5,12,1\n"));
  EXPECT_EQ(prepared({.inputs = {one, two, three}, .out = folder / "s"}),
            (std::vector<std::string>{"1: 11@4 10@5 12@5", "2: 20@1 21@1"}));
}

TEST(Prepare, KeepsSignalsAndNumbers) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv",
                              "user_id,item_id,is_like,time,rating,is_click\n"
                              "1,1,0,3,4.5,1\n1,2,1,2,,0\n1,3,1,1,2,1\n");
  PrepareOptions options{.inputs = {log}, .out = folder / "s"};
  prepare_with(options);
  const Store store(options.out);
  EXPECT_EQ(store.manifest().signals, (std::vector<std::string>{"is_like", "is_click"}));
  std::vector<std::uint32_t> bits(3);
  store.read_signals(0, bits);
  EXPECT_EQ(bits, (std::vector<std::uint32_t>{3, 1, 2}));
  EXPECT_EQ(store.numbers("rating")[0], 2.0f);
  EXPECT_TRUE(store.numbers("rating")[1] != store.numbers("rating")[1]);
  EXPECT_EQ(store.numbers("rating")[2], 4.5f);

  options.out = folder / "t";
  options.keep_signal = "is_click";
  EXPECT_EQ(prepare_with(options).without_signal, 1);
  EXPECT_EQ(histories_of(Store(options.out)), (std::vector<std::string>{"1: 3@1 1@3"}));
  EXPECT_EQ(Store(options.out).num_items(), 2);
  options.out = folder / "u";
  options.keep_signal = "is_share";
  EXPECT_NE(test::message_of([&] { prepare(options); }).find("is_like, is_click"),
            std::string::npos);
}

TEST(Prepare, TakesTimesInEverySpelling) {
  TemporaryFolder folder;
  const auto unit = [&](const std::string& times, const std::string& asked = "auto") {
    std::string text = "user,item,time\n";
    std::size_t at = 0;
    while (at < times.size()) {
      const std::size_t stop = std::min(times.find(' ', at), times.size());
      text += fmt::format("1,1,{}\n", times.substr(at, stop - at));
      at = stop + 1;
    }
    PrepareOptions options{.inputs = {write_file(folder / "log.csv", text)},
                           .out = folder / "s",
                           .overwrite = true,
                           .time_unit = asked};
    prepare_with(options);
    const Store store(options.out);
    return std::string(name_of(store.time_unit())) + std::to_string(store.times()[0]);
  };
  EXPECT_EQ(unit("978300019 978300020"), "s978300019");
  EXPECT_EQ(unit("1650882384975 1"), "ms1");
  EXPECT_EQ(unit("978300019", "ms"), "ms978300019");
  EXPECT_EQ(unit("2022-04-08T12:30:15Z 2022-04-09"), "s1649421015");
  EXPECT_EQ(unit("2022-04-08T12:30:15.5Z 2022-04-09"), "ms1649421015500");
  EXPECT_EQ(unit("1650882384.0"), "s1650882384");
  EXPECT_EQ(unit("1650882384.5 1650882385"), "ms1650882384500");
  EXPECT_EQ(unit("1650882386 1650882384.5"), "ms1650882384500");
}

TEST(Prepare, KeepsFileOrderWhenTimesAreMissing) {
  TemporaryFolder folder;
  const auto partly = write_file(folder / "chrono.csv",
                                 "user_id,item_id,rating,timestamp\n"
                                 "2,9,4,50\n1,5,4,\n2,3,4,20\n1,4,3,10\n");
  PrepareOptions options{.inputs = {partly}, .out = folder / "s"};
  const PrepareReport report = prepare_with(options);
  ASSERT_EQ(report.remarks.size(), 1u);
  EXPECT_NE(report.remarks[0].find("1 of 4 rows have no time"), std::string::npos);
  EXPECT_EQ(histories_of(Store(options.out)), (std::vector<std::string>{"1: 5 4", "2: 9 3"}));
  options.out = folder / "t";
  options.inputs = {write_file(folder / "bare.csv", "2,9\n1,5\n2,3\n")};
  options.columns = {.user = "1", .item = "2"};
  EXPECT_EQ(prepared(options), (std::vector<std::string>{"1: 5", "2: 9 3"}));
}

TEST(Prepare, TakesStringAndMixedIds) {
  TemporaryFolder folder;
  const auto log =
      write_file(folder / "log.csv", "user,item,time\nbob,007,1\n\"al, b\",7,2\nbob,7,3\n");
  EXPECT_EQ(prepared({.inputs = {log}, .out = folder / "s"}),
            (std::vector<std::string>{"al, b: 7@2", "bob: 007@1 7@3"}));
  EXPECT_EQ(Store(folder / "s").item_ids().find("007"), 0);
  const auto numbers = write_file(folder / "n.csv", "user,item\n10,1\n9,1\n");
  EXPECT_EQ(prepared({.inputs = {numbers}, .out = folder / "t", .ids = "string"}),
            (std::vector<std::string>{"10: 1", "9: 1"}));
}

TEST(Prepare, TakesMovieLensInAllItsForms) {
  TemporaryFolder folder;
  const std::vector<std::string> wanted = {"1: 661@5 1193@9", "2: 1@7"};
  int number = 0;
  for (const char* text :
       {"1::1193::5::9\n1::661::3::5\n2::1::4::7\n", "1\t1193\t5\t9\n1\t661\t3\t5\n2\t1\t4\t7\n",
        "userId,movieId,rating,timestamp\n1,1193,5,9\n1,661,3,5\n2,1,4,7\n"}) {
    const std::string name = std::to_string(number++);
    const auto file = write_file(folder / (name + ".dat"), text);
    EXPECT_EQ(prepared({.format = LogFormat::kMovieLens, .inputs = {file}, .out = folder / name}),
              wanted);
    EXPECT_EQ(Store(folder / name).numbers("rating")[0], 3.0f);
  }
}

TEST(Prepare, TakesAFolderOfKuaiRandWithItsFeatureTables) {
  TemporaryFolder folder;
  fs::create_directory(folder / "in");
  const std::string header =
      "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,"
      "is_hate,long_view,play_time_ms,duration_ms,profile_stay_time,comment_stay_time,"
      "is_profile_enter,is_rand,tab\n";
  write_file(folder / "in/log_standard_4_08_to_4_21_1k.csv",
             header + "5,80,20220408,1,1649400000002,1,0,0,0,0,0,1,900,1000,0,0,0,0,1\n");
  write_file(folder / "in/log_random_4_22_to_5_08_1k.csv",
             header + "5,81,20220422,1,1649400000001,0,0,0,0,0,0,0,10,1000,0,0,0,1,1\n");
  const std::string users = "user_id,range\n5,\"[1,5)\"\n";
  write_file(folder / "in/user_features_1k.csv", users);
  write_file(folder / "in/video_features_basic_1k.csv.gz", test::gzip("video_id,tag\n80,1\n"));
  write_file(folder / "in/README.csv", "not a log");
  PrepareOptions options{
      .format = LogFormat::kKuaiRand, .inputs = {folder / "in"}, .out = folder / "s"};
  EXPECT_EQ(prepared(options), (std::vector<std::string>{"5: 81@1649400000001 80@1649400000002"}));
  const Store store(options.out);
  EXPECT_EQ(store.time_unit(), TimeUnit::kMilliseconds);
  EXPECT_EQ(store.manifest().signals.size(), 9u);
  EXPECT_EQ(store.signal_bit("is_rand"), 8);
  EXPECT_EQ(store.numbers("play_time_ms")[1], 900.0f);
  EXPECT_EQ(read_file(store.side_table("user_features")), users);
  EXPECT_EQ(read_file(store.side_table("item_features")), "video_id,tag\n80,1\n");
}

TEST(Prepare, FindsTheRatingsAndTitlesInAMovieLensFolder) {
  for (const auto& [ratings, titles] :
       {std::pair{"ratings.dat", "movies.dat"}, std::pair{"ratings.csv", "movies.csv"},
        std::pair{"u.data", "u.item"}}) {
    TemporaryFolder folder;
    fs::create_directory(folder / "in");
    const bool csv = std::string(ratings) == "ratings.csv";
    write_file(folder / "in" / ratings,
               csv ? "userId,movieId,rating,timestamp\n7,30,5,2\n" : "7::30::5::2\n");
    const std::string table =
        csv ? "movieId,title,genres\n30,Heat (1995),Crime\n" : "30|Heat (1995)|Crime\n";
    write_file(folder / "in" / titles, table);
    write_file(folder / "in/README", "not a log");
    PrepareOptions options{
        .format = LogFormat::kMovieLens, .inputs = {folder / "in"}, .out = folder / "s"};
    EXPECT_EQ(prepared(options), (std::vector<std::string>{"7: 30@2"}));
    EXPECT_EQ(read_file(Store(options.out).side_table("item_features")), table);
    fs::remove(folder / "in" / ratings);
    options.overwrite = true;
    EXPECT_NE(test::message_of([&] {
                prepare(options);
              }).find("holds none of ratings.dat, ratings.csv and u.data"),
              std::string::npos);
  }
}

TEST(Prepare, AgreesWithAPlainSortOfTheSameLog) {
  TemporaryFolder folder;
  const std::string text = random_log(3000, false, 21);
  struct Event {
    std::int64_t user, time, place, item;
    auto operator<=>(const Event&) const = default;
  };
  std::vector<Event> events;
  std::size_t at = text.find('\n') + 1;
  while (at < text.size()) {
    Event event{};
    ASSERT_EQ(std::sscanf(text.c_str() + at, "%ld,%ld,%ld", &event.user, &event.item, &event.time),
              3);
    event.place = static_cast<std::int64_t>(at);
    events.push_back(event);
    at = text.find('\n', at) + 1;
  }
  std::sort(events.begin(), events.end());
  std::vector<std::string> wanted;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (i == 0 || events[i].user != events[i - 1].user) {
      wanted.push_back(std::to_string(events[i].user) + ":");
    }
    wanted.back() += fmt::format(" {}@{}", events[i].item, events[i].time);
  }
  EXPECT_EQ(prepared({.inputs = {write_file(folder / "log.csv", text)},
                      .out = folder / "s",
                      .memory_bytes = 100'000}),
            wanted);
}

}  // namespace
}  // namespace turbogr::data
