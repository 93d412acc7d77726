#include "turbogr/data/holdout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/messages.h"

namespace turbogr::data {
namespace {

using test::message_of;
using Pair = std::pair<std::int64_t, std::int64_t>;

std::int64_t used(const char* text, Split split, std::int64_t count) {
  return Holdout(text).events_used(split, count, {}, TimeUnit::kNone);
}

TEST(Holdout, TestKeepsBackTheLastEvent) {
  EXPECT_EQ(used("test", Split::kTrain, 10), 9);
  EXPECT_EQ(used("test", Split::kTest, 10), 10);
  EXPECT_EQ(used("test", Split::kTrain, 3), 2);
  EXPECT_EQ(used("test", Split::kTrain, 2), 0);
  EXPECT_EQ(used("test", Split::kTest, 2), 0);
}

TEST(Holdout, ValidationTestKeepsBackTwo) {
  EXPECT_EQ(Holdout().text(), "validation_test");
  EXPECT_EQ(used("validation_test", Split::kTrain, 10), 8);
  EXPECT_EQ(used("validation_test", Split::kValidation, 10), 9);
  EXPECT_EQ(used("validation_test", Split::kTest, 10), 10);
  EXPECT_EQ(used("validation_test", Split::kTrain, 3), 0);  // one event predicts nothing
  EXPECT_EQ(used("validation_test", Split::kValidation, 3), 2);
  EXPECT_EQ(used("validation_test", Split::kTest, 0), 0);
}

TEST(Holdout, TimeKeepsBackEverythingFromThenOn) {
  const std::vector<std::int64_t> times = {10, 20, 20, 30, 40};
  const auto at = [&](const char* text, Split split) {
    return Holdout(text).events_used(split, 5, times, TimeUnit::kSeconds);
  };
  EXPECT_EQ(at("time:30", Split::kTrain), 3);
  EXPECT_EQ(at("time:30", Split::kTest), 4);  // the target is the event at 30
  EXPECT_EQ(at("time:21", Split::kTrain), 3);
  EXPECT_EQ(at("time:20", Split::kTrain), 0);  // a single event is left
  EXPECT_EQ(at("time:20", Split::kTest), 2);
  EXPECT_EQ(at("time:10", Split::kTest), 0);  // nothing before the target
  EXPECT_EQ(at("time:41", Split::kTrain), 5);
  EXPECT_EQ(at("time:41", Split::kTest), 0);  // no event that late
}

TEST(Holdout, DatesAreUtcInTheStoresUnit) {
  const std::int64_t may = 1651363200;
  const std::vector<std::int64_t> seconds = {may - 2, may - 1, may, may + 43200};
  std::vector<std::int64_t> milliseconds;
  for (const std::int64_t time : seconds) milliseconds.push_back(time * 1000);
  const auto train = [](const char* text, const std::vector<std::int64_t>& times, TimeUnit unit) {
    return Holdout(text).events_used(Split::kTrain, 4, times, unit);
  };
  EXPECT_EQ(train("time:2022-05-01", seconds, TimeUnit::kSeconds), 2);
  EXPECT_EQ(train("time:2022-05-01", milliseconds, TimeUnit::kMilliseconds), 2);
  EXPECT_EQ(train("time:2022-05-01T12:00:00", milliseconds, TimeUnit::kMilliseconds), 3);
  EXPECT_EQ(train("time:2022-05-01 12:00:01", seconds, TimeUnit::kSeconds), 4);
  EXPECT_EQ(train("time:1651363200000", milliseconds, TimeUnit::kMilliseconds), 2);
  // As times of a log are spelt: with a zone, without seconds, with fractions of one.
  EXPECT_EQ(train("time:2022-05-01T02:00+02:00", seconds, TimeUnit::kSeconds), 2);
  EXPECT_EQ(train("time:2022-05-01T12:00Z", milliseconds, TimeUnit::kMilliseconds), 3);
  EXPECT_EQ(train("time:2022-04-30T23:59:58.5", seconds, TimeUnit::kSeconds), 0);
  EXPECT_EQ(train("time:2022-04-30T23:59:59.5", seconds, TimeUnit::kSeconds), 2);
  EXPECT_EQ(Holdout("time:1960-01-01T00:00:00.5")
                .events_used(Split::kTest, 3, std::vector<std::int64_t>{-315619200, -315619199, 0},
                             TimeUnit::kSeconds),
            2);
}

TEST(Holdout, KeepsEventsBeforeTheTestForValidation) {
  const std::vector<std::int64_t> times = {10, 20, 20, 30, 40};
  const Holdout by_time("time:20,35");
  EXPECT_TRUE(by_time.has_validation());
  EXPECT_FALSE(Holdout("time:35").has_validation());
  const auto targets = [&](const Holdout& holdout, Split split, std::int64_t count) {
    const EventRange range = holdout.targets_of(split, count, times, TimeUnit::kSeconds, 8);
    return Pair(range.begin, range.end);
  };
  EXPECT_EQ(targets(by_time, Split::kTrain, 5), Pair(0, 1));
  EXPECT_EQ(targets(by_time, Split::kValidation, 5), Pair(1, 4));
  EXPECT_EQ(targets(by_time, Split::kTest, 5), Pair(4, 5));
  EXPECT_EQ(targets(by_time, Split::kTest, 5), targets(Holdout("time:35"), Split::kTest, 5));
  const Holdout by_share("last:10%,20%");
  EXPECT_EQ(targets(by_share, Split::kTrain, 50), Pair(0, 35));
  EXPECT_EQ(targets(by_share, Split::kValidation, 50), Pair(35, 40));
  EXPECT_EQ(targets(by_share, Split::kTest, 50), targets(Holdout("last:20%"), Split::kTest, 50));
  // At least one event each, the test's first.
  EXPECT_EQ(targets(by_share, Split::kValidation, 2), Pair(0, 1));
  EXPECT_EQ(targets(by_share, Split::kTrain, 2), Pair(0, 0));
  EXPECT_EQ(targets(by_share, Split::kValidation, 1), Pair(0, 0));
  // Retrieval: the first event kept back is the target.
  const auto used_by = [&](const char* text, Split split) {
    return Holdout(text).events_used(split, 5, times, TimeUnit::kSeconds);
  };
  EXPECT_EQ(used_by("time:30,40", Split::kTrain), 3);
  EXPECT_EQ(used_by("time:30,40", Split::kValidation), 4);
  EXPECT_EQ(used_by("time:30,40", Split::kTest), 5);
  EXPECT_EQ(used_by("time:31,40", Split::kValidation), 0);  // none from then on but the test's
  EXPECT_EQ(message_of([] { Holdout("time:40,30"); }),
            "hold-out 'time:40,30': the validation split begins first; give two dates or two "
            "numbers, the earlier one first");
  EXPECT_NE(message_of([] { Holdout("time:2022-05-01,1651363200"); }).find("two dates"),
            std::string::npos);
  EXPECT_NE(message_of([] { Holdout("last:50%,50%"); }).find("100%"), std::string::npos);
  EXPECT_NE(message_of([] { Holdout("last:5,50%"); }).find("share '5'"), std::string::npos);
  EXPECT_NE(message_of([] { Holdout("last:5,50%"); }).find("last:V%,P% also the V% before"),
            std::string::npos);
  EXPECT_NE(message_of([] { Holdout("time:soon"); }).find("time:V,T also validates from V to T"),
            std::string::npos);
}

TEST(Holdout, ATestMayEndBeforeTheLog) {
  const std::vector<std::int64_t> times = {10, 20, 20, 30, 40};
  const auto targets = [&](const char* text, Split split) {
    const EventRange range = Holdout(text).targets_of(split, 5, times, TimeUnit::kSeconds, 8);
    return Pair(range.begin, range.end);
  };
  EXPECT_EQ(targets("time:20..40", Split::kTest), Pair(1, 4));
  EXPECT_EQ(targets("time:20..40", Split::kTrain), Pair(0, 1)) << "what comes later trains nothing";
  EXPECT_EQ(targets("time:20..41", Split::kTest), targets("time:20", Split::kTest));
  EXPECT_EQ(targets("time:31..39", Split::kTest), Pair(4, 4));
  EXPECT_EQ(targets("time:20,30..40", Split::kValidation), Pair(1, 3));
  EXPECT_EQ(targets("time:20,30..40", Split::kTest), Pair(3, 4));
  const auto used_by = [&](const char* text) {
    return Holdout(text).events_used(Split::kTest, 5, times, TimeUnit::kSeconds);
  };
  EXPECT_EQ(used_by("time:30..40"), 4);
  EXPECT_EQ(used_by("time:31..40"), 0) << "the event at 40 is no target";
  const std::vector<std::int64_t> may = {1651363200, 1651449600, 1651536000};
  const EventRange day = Holdout("time:2022-05-02..2022-05-03")
                             .targets_of(Split::kTest, 3, may, TimeUnit::kSeconds, 8);
  EXPECT_EQ(Pair(day.begin, day.end), Pair(1, 2));
  for (const char* text : {"time:40..40", "time:2022-05-01..1651363200"}) {
    EXPECT_NE(message_of([&] { Holdout holdout(text); }).find("the test ends after it began"),
              std::string::npos)
        << text;
  }
  EXPECT_NE(message_of([] { Holdout("time:4.."); }).find("hold-out time ''"), std::string::npos);
  EXPECT_NE(message_of([] { Holdout("last:5%..2%"); }).find("share '5%..2%'"), std::string::npos);
}

TEST(Holdout, SaysWhatItDoesNotUnderstand) {
  EXPECT_EQ(message_of([] { Holdout("last"); }),
            "hold-out 'last'; use test, validation_test, time:T, time:V,T, time:T..E, last:P% or "
            "last:V%,P%");
  for (const char* text : {"time:", "time:soon", "time:2022-13-01", "time:2022-02-30",
                           "time:2022-05-01T25:00:00", "time:2022-05-01Tab:00:00"}) {
    EXPECT_NE(message_of([&] { Holdout holdout(text); }).find("is neither a number"),
              std::string::npos)
        << text;
  }
  EXPECT_NE(message_of([] {
              Holdout("test").check(Split::kValidation, TimeUnit::kSeconds);
            }).find("keeps no validation events"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              Holdout("time:5").check(Split::kTest, TimeUnit::kNone);
            }).find("needs times"),
            std::string::npos);
  EXPECT_EQ(message_of([] { Holdout("time:5").check(Split::kTest, TimeUnit::kSeconds); }), "");
}

}  // namespace
}  // namespace turbogr::data
