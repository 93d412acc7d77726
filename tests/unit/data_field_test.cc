#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/messages.h"
#include "turbogr/data/field.h"
#include "turbogr/data/log_layout.h"

namespace turbogr::data {
namespace {

using test::has;
using test::message_of;

FieldError integer_error(std::string_view text) {
  std::int64_t value = 0;
  return parse_integer(text, value);
}

std::int64_t integer(std::string_view text) {
  std::int64_t value = -12345;
  EXPECT_EQ(parse_integer(text, value), FieldError::kNone) << text;
  return value;
}

TEST(Field, ReadsIntegersThatGiveBackTheirText) {
  EXPECT_EQ(integer("0"), 0);
  EXPECT_EQ(integer("-7"), -7);
  EXPECT_EQ(integer("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(integer("-9223372036854775807"), -INT64_MAX);
  EXPECT_EQ(integer_error(""), FieldError::kEmpty);
  for (const char* text : {"-", "+1", "007", "-0", "1.0", "1 ", " 1", "1e3", "x", "0x1"}) {
    EXPECT_EQ(integer_error(text), FieldError::kNotANumber) << text;
  }
  EXPECT_EQ(integer_error("9223372036854775808"), FieldError::kTooLarge);
  EXPECT_EQ(integer_error("99999999999999999999"), FieldError::kTooLarge);
}

TEST(Field, ReadsNumbers) {
  const auto number = [](std::string_view text) {
    float value = -1;
    EXPECT_EQ(parse_float(text, value), FieldError::kNone) << text;
    return value;
  };
  EXPECT_EQ(number("4"), 4.0f);
  EXPECT_EQ(number("3.5"), 3.5f);
  EXPECT_EQ(number("-0.25"), -0.25f);
  EXPECT_EQ(number("+2"), 2.0f);
  EXPECT_EQ(number("1e3"), 1000.0f);
  EXPECT_EQ(number("123456789012345"), 123456789012345.0f);
  EXPECT_TRUE(std::isnan(number("")));
  float value = 0;
  EXPECT_EQ(parse_float("1e999", value), FieldError::kTooLarge);
  EXPECT_EQ(parse_float("inf", value), FieldError::kNotANumber);
  EXPECT_EQ(parse_float("-infinity", value), FieldError::kNotANumber);
  EXPECT_EQ(parse_float("4 stars", value), FieldError::kNotANumber);
}

TEST(Field, ReadsSignals) {
  const auto signal = [](std::string_view text) {
    bool value = false;
    EXPECT_EQ(parse_signal(text, value), FieldError::kNone) << text;
    return value;
  };
  for (const char* text : {"1", "true", "True", "2", "1.0"}) EXPECT_TRUE(signal(text)) << text;
  for (const char* text : {"0", "false", "FALSE", "", "0.0"}) EXPECT_FALSE(signal(text)) << text;
  bool value = false;
  EXPECT_EQ(parse_signal("yes", value), FieldError::kNotANumber);
}

TEST(Field, ReadsTimesInEverySpelling) {
  const auto time = [](std::string_view text) {
    std::int64_t value = -1;
    EXPECT_EQ(parse_time(text, guess_time_spelling(text), value), FieldError::kNone) << text;
    return value;
  };
  EXPECT_EQ(time("978300019"), 978300019);
  EXPECT_EQ(time("-5"), -5);
  EXPECT_EQ(time("1650882384.975"), 1650882384975);
  EXPECT_EQ(time("1970-01-01"), 0);
  EXPECT_EQ(time("2000-02-29 00:00"), 951782400000);
  EXPECT_EQ(time("2022-04-08T12:30:15Z"), 1649421015000);
  EXPECT_EQ(time("2022-04-08T12:30:15.25+02:00"), 1649413815250);
  EXPECT_EQ(time("2022-04-08 12:30:15 -0130"), 1649426415000);
  EXPECT_EQ(time("2022-04-08 12:30:15 UTC"), 1649421015000);
  EXPECT_EQ(time("2022-04-08 12:30:15+02"), 1649413815000);
  EXPECT_EQ(time("1969-12-31 23:59:59.5"), -500);
  std::int64_t value = 0;
  for (const char* text :
       {"2022-13-01", "2021-02-29", "2022-04-08T25:00", "2022-04-08x", "2022-04-08 12", "2022-4-8",
        "2022-04-08 12:00:00.", "2022-04-08 1:00", "2022-04-08 12:00 CET", "2022-04-08 12:00:61"}) {
    EXPECT_EQ(parse_time(text, TimeSpelling::kIso, value), FieldError::kBadTime) << text;
  }
  EXPECT_EQ(parse_time("noon", TimeSpelling::kDecimalSeconds, value), FieldError::kBadTime);
  EXPECT_EQ(parse_time("1e30", TimeSpelling::kDecimalSeconds, value), FieldError::kTooLarge);
  EXPECT_EQ(parse_time("1650882384975000", TimeSpelling::kInteger, value), FieldError::kTooLarge);
}

LogLayout layout_of(const std::string& text, ColumnMap map = {},
                    LogFormat format = LogFormat::kCsv) {
  return find_layout(format, map, text, "log.csv");
}

TEST(LogLayout, FindsColumnsByTheirUsualNames) {
  const LogLayout chrono = layout_of("user_id,item_id,rating,timestamp\n1,2,3,4\n");
  EXPECT_TRUE(chrono.header);
  EXPECT_EQ(chrono.user, 0);
  EXPECT_EQ(chrono.item, 1);
  EXPECT_EQ(chrono.time, 3);
  EXPECT_EQ(chrono.number_names, (std::vector<std::string>{"rating"}));
  const LogLayout other = layout_of("Timestamp\tis_click\tMovieID\tUserId\textra\r\n");
  EXPECT_EQ(other.dialect.delimiter, "\t");
  EXPECT_EQ(other.user, 3);
  EXPECT_EQ(other.item, 2);
  EXPECT_EQ(other.time, 0);
  EXPECT_EQ(other.signal_names, (std::vector<std::string>{"is_click"}));
}

TEST(LogLayout, FollowsAColumnMap) {
  const LogLayout named = layout_of(
      "who;what;when;good;much\n",
      {.user = "who", .item = "what", .time = "when", .signals = {"good"}, .numbers = {"much"}});
  EXPECT_TRUE(named.header);
  EXPECT_EQ(named.user, 0);
  EXPECT_EQ(named.signals, (std::vector<int>{3}));
  EXPECT_EQ(named.numbers, (std::vector<int>{4}));
  const LogLayout numbered = layout_of("7,8,9\n", {.user = "2", .item = "3"});
  EXPECT_FALSE(numbered.header);
  EXPECT_EQ(numbered.user, 1);
  EXPECT_EQ(numbered.item, 2);
  EXPECT_EQ(numbered.time, -1);
  const LogLayout untimed = layout_of("user,item,time,is_like,rating\n",
                                      {.time = "none", .signals = {"none"}, .numbers = {"none"}});
  EXPECT_EQ(untimed.time, -1);
  EXPECT_TRUE(untimed.signals.empty());
  EXPECT_TRUE(untimed.numbers.empty());
}

TEST(LogLayout, KnowsMovieLensInAllItsForms) {
  for (const char* text : {"1::1193::5::978300760\n", "196\t242\t3\t881250949\n"}) {
    const LogLayout layout = layout_of(text, {}, LogFormat::kMovieLens);
    EXPECT_FALSE(layout.header);
    EXPECT_EQ(layout.user, 0);
    EXPECT_EQ(layout.item, 1);
    EXPECT_EQ(layout.time, 3);
    EXPECT_EQ(layout.number_names, (std::vector<std::string>{"rating"}));
  }
  const LogLayout csv =
      layout_of("userId,movieId,rating,timestamp\n1,1,4.0,9\n", {}, LogFormat::kMovieLens);
  EXPECT_TRUE(csv.header);
  EXPECT_EQ(csv.time, 3);
  EXPECT_TRUE(
      has(message_of([] { layout_of("1::2\n", {}, LogFormat::kMovieLens); }), "has 2 columns"));
}

TEST(LogLayout, KnowsKuaiRandsLogsAndFeatureTables) {
  const LogLayout log = layout_of("user_id,video_id,date,time_ms,is_click,long_view,play_time_ms\n",
                                  {}, LogFormat::kKuaiRand);
  EXPECT_EQ(log.time, 3);
  EXPECT_TRUE(log.time_named_ms);
  EXPECT_EQ(log.signal_names, (std::vector<std::string>{"is_click", "long_view"}));
  EXPECT_EQ(log.number_names, (std::vector<std::string>{"play_time_ms"}));
  EXPECT_FALSE(log.is_side_table);
  const LogLayout users = layout_of("user_id,is_lowactive_period\n", {}, LogFormat::kKuaiRand);
  EXPECT_TRUE(users.is_side_table);
  EXPECT_FALSE(users.side_of_items);
  EXPECT_TRUE(layout_of("video_id,author_id\n", {}, LogFormat::kKuaiRand).side_of_items);
}

TEST(LogLayout, TakesNoOtherLogForKuaiRands) {
  const auto message = [](const std::string& text, ColumnMap map = {}) {
    return message_of([&] { layout_of(text, map, LogFormat::kKuaiRand); });
  };
  EXPECT_TRUE(has(message("userId,movieId,rating,timestamp\n1,2,3,4\n"),
                  "is not KuaiRand's: it has no column user_id, video_id, time_ms; it has: userId, "
                  "movieId, rating, timestamp"));
  EXPECT_TRUE(has(message("1::1193::5::978300760\n"), "no column user_id, video_id, time_ms"));
  EXPECT_TRUE(has(message("user_id,item_id,time_ms\n"), "no column video_id; it has"));
  EXPECT_TRUE(has(message("movieId,title,genres\n"), "no column video_id; it has"));
  EXPECT_FALSE(
      layout_of("user_id,photo,time_ms\n", {.item = "photo"}, LogFormat::kKuaiRand).is_side_table);
}

TEST(LogLayout, SaysWhatIsMissing) {
  const auto message = [](const std::string& text, ColumnMap map = {}) {
    return message_of([&] { layout_of(text, map); });
  };
  EXPECT_TRUE(has(message(""), "is empty"));
  EXPECT_TRUE(has(message("\n\r\n"), "is empty"));
  EXPECT_TRUE(has(message("user_id,rating\n1,2\n"), "no item column"));
  EXPECT_TRUE(has(message("user_id,rating\n1,2\n"), "it has: user_id, rating"));
  EXPECT_TRUE(has(message("1,2,3\n"), "is no header"));
  EXPECT_TRUE(has(message("1,2,3\n", {.header = "no"}), "no user column"));
  EXPECT_TRUE(has(message("user_id\n"), "no delimiter"));
  EXPECT_TRUE(has(message("user_id,item_id\n", {.delimiter = ";"}), "is --delimiter wrong?"));
  EXPECT_TRUE(
      has(message("user,item\n", {.time = "when"}), "no column 'when'; it has: user, item"));
  EXPECT_TRUE(has(message("1,2\n", {.user = "who"}), "no header"));
  EXPECT_TRUE(has(message("1,2\n", {.user = "1", .item = "9"}), "no column 9"));
  EXPECT_TRUE(has(message("1,2\n", {.user = "1", .item = "1"}), "same column"));
  EXPECT_TRUE(has(message("a,b\n", {.header = "maybe"}), "--header"));
  EXPECT_TRUE(has(message_of([] { log_format_from_name("json"); }),
                  "kuairand, movielens, yambda, csv and parquet"));
}

}  // namespace
}  // namespace turbogr::data
