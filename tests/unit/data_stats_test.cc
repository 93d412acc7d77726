#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/stores.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/stats.h"
#include "turbogr/data/store_writer.h"

namespace turbogr::data {
namespace {

TEST(Stats, QuantilesAreValuesThatOccur) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 100; i >= 0; --i) values.push_back(i * 10);
  const Quantiles q = quantiles_of(values);
  EXPECT_EQ(q.min, 0);
  EXPECT_EQ(q.p10, 100);
  EXPECT_EQ(q.p25, 250);
  EXPECT_EQ(q.p50, 500);
  EXPECT_EQ(q.p75, 750);
  EXPECT_EQ(q.p90, 900);
  EXPECT_EQ(q.p99, 990);
  EXPECT_EQ(q.max, 1000);
  EXPECT_DOUBLE_EQ(q.mean, 500);
  EXPECT_EQ(quantiles_of({7}).p99, 7);
  EXPECT_EQ(quantiles_of({}).max, 0);
}

TEST(Stats, CountsLengthsPopularityTimesAndSignals) {
  test::TemporaryFolder folder;
  StoreWriter writer(folder / "s",
                     {.time_unit = TimeUnit::kSeconds, .num_items = 3, .signals = {"click"}});
  const std::vector<std::int64_t> items = {2, 2, 0, 2};
  const std::vector<std::int64_t> times = {100, 200, 300, 86400};
  const std::vector<std::uint32_t> bits = {1, 0, 0, 0};
  writer.add_user({.items = items, .times = times, .signals = bits});
  writer.add_user({});
  writer.finish();
  const StoreStats stats = stats_of(Store(folder / "s"));
  EXPECT_EQ(stats.lengths.min, 0);
  EXPECT_EQ(stats.lengths.max, 4);
  EXPECT_EQ(stats.popularity.p50, 1);
  EXPECT_EQ(stats.popularity.max, 3);
  const auto json = nlohmann::json::parse(to_json(stats));
  EXPECT_EQ(json["users"], 2);
  EXPECT_EQ(json["items"], 3);
  EXPECT_EQ(json["events"], 4);
  EXPECT_EQ(json["lengths"]["mean"], 2.0);
  EXPECT_EQ(json["popularity"]["min"], 0);
  EXPECT_EQ(json["time"]["unit"], "s");
  EXPECT_EQ(json["time"]["span"], 86300);
  EXPECT_EQ(json["signals"]["click"], 0.25);
  // Of 2, 2, 0, 2 the second and the last come back.
  EXPECT_EQ(json["repeats"]["events"], 0.5);
  EXPECT_EQ(json["repeats"]["last_events"], 1.0);
  const std::string text = to_text(stats);
  EXPECT_NE(text.find("repeats    50.0 % of events, 100.0 % of last events are items their user "
                      "had met; eval.seen = \"auto\" is \"keep\""),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1970-01-01 00:01:40 to 1970-01-02 00:00:00 UTC"), std::string::npos) << text;
}

TEST(Stats, TimesAreShownAsDatesOfTheYears0To9999) {
  const auto shown = [](std::int64_t first, std::int64_t last, TimeUnit unit) {
    const std::string text = to_text({.time_unit = unit, .first_time = first, .last_time = last});
    const std::size_t begin = text.find("time ") + 11;
    return text.substr(begin, text.find(" UTC", begin) - begin);
  };
  EXPECT_EQ(shown(-62135596800, 253402300799, TimeUnit::kSeconds),
            "0001-01-01 00:00:00 to 9999-12-31 23:59:59");
  EXPECT_EQ(shown(-1, 1999, TimeUnit::kMilliseconds), "1969-12-31 23:59:59 to 1970-01-01 00:00:01");
  EXPECT_EQ(shown(-62167219201, 253402300800, TimeUnit::kSeconds), "-62167219201 to 253402300800");
}

TEST(Stats, ADamagedStoreIsToldAndNotCounted) {
  test::TemporaryFolder folder;
  const auto damaged = [&](const char* file, std::size_t at, char byte) {
    std::filesystem::remove_all(folder / "s");
    test::write_numbered_store(folder / "s", {3, 4, 5});
    std::string bytes = test::read_file(folder / "s" / file);
    bytes[at] = byte;
    test::write_file(folder / "s" / file, bytes);
    return test::message_of([&] { stats_of(Store(folder / "s")); });
  };
  EXPECT_NE(damaged("items.bin", 5, 1).find("names item 257, and there are 12"), std::string::npos);
  EXPECT_NE(damaged("items.bin", 7, '\xff').find("turbogr data verify"), std::string::npos);
  EXPECT_NE(damaged("user_offsets.bin", 8, 100).find("offsets of user 0 are damaged"),
            std::string::npos);
  EXPECT_NE(damaged("user_offsets.bin", 16, 1).find("offsets of user 1 are damaged"),
            std::string::npos);
  std::filesystem::remove(folder / "s" / "items.bin");
  EXPECT_NE(test::message_of([&] { Store store(folder / "s"); }).find("is missing"),
            std::string::npos);
  std::filesystem::remove(folder / "s" / "manifest.json");
  std::filesystem::create_directory(folder / "s" / "manifest.json");
  EXPECT_NE(test::message_of([&] { Store store(folder / "s"); }).find("no manifest.json"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::data
