// What prepare makes of rows on request: labels, repeats left out; and what it says of the rest.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/histories.h"
#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/features/feature.h"
#include "turbogr/data/label.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

using test::has;
using test::histories_of;
using test::message_of;
using test::TemporaryFolder;
using test::write_file;
using Lines = std::vector<std::string>;

TEST(Label, HoldsByItsSign) {
  const auto holds = [](const std::string& text) {
    std::string which;
    for (const float value : {3.0f, 4.0f, 5.0f})
      which += parse_label(text).tests.at(0).of(value) == LabelVerdict::kSet ? '1' : '0';
    return which;
  };
  EXPECT_EQ(holds("rating>=4"), "011");
  EXPECT_EQ(holds("rating>4"), "001");
  EXPECT_EQ(holds("rating<=4"), "110");
  EXPECT_EQ(holds("rating < 4"), "100");
  EXPECT_EQ(holds("rating==4"), "010");
  EXPECT_EQ(holds("rating=4"), "010");
  EXPECT_EQ(holds("rating!=4.0"), "101");
  EXPECT_EQ(holds("!rating>=4"), "100");
  const float missing = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(parse_label("rating!=4").tests[0].of(missing), LabelVerdict::kMissing);
  EXPECT_EQ(parse_label("!rating!=4").tests[0].of(missing), LabelVerdict::kSet);
  EXPECT_EQ(parse_label("rating >= 4").name, "rating>=4");
  for (const char* text : {"", "rating", ">=4", "rating>=", "rating>=good", "rating>=nan",
                           "rating=>4", "x=4&", "=4==4", "a==b&", "&a==b", "!=4", "a===b"}) {
    EXPECT_TRUE(has(message_of([&] { parse_label(text); }), "write it like \"rating>=4\"")) << text;
  }
}

TEST(Label, ComparesTextsAndJoinsTests) {
  const Label bought = parse_label("bought = kind == add to cart & price>0");
  EXPECT_EQ(bought.name, "bought");
  ASSERT_EQ(bought.tests.size(), 2u);
  EXPECT_EQ(bought.tests[0].column, "kind");
  EXPECT_EQ(bought.tests[0].of("add to cart"), LabelVerdict::kSet);
  EXPECT_EQ(bought.tests[0].of("add"), LabelVerdict::kNotSet);
  EXPECT_EQ(bought.tests[0].of(""), LabelVerdict::kMissing);
  EXPECT_FALSE(bought.tests[1].of_text);
  EXPECT_EQ(parse_label("kind==a & !price > 0").name, "kind==a&!price>0");
  EXPECT_EQ(parse_label("kind!=a").tests[0].of("b"), LabelVerdict::kSet);
  EXPECT_EQ(parse_label("kind=a").name, "kind=a");
}

// A listen to at least half, and one to less or to nobody knows how much of it.
TEST(Label, MakesSignalsOfATypeOfEventAndANumber) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv",
                              "user,item,time,kind,played\n"
                              "1,1,1,listen,50\n1,2,2,listen,49.5\n1,3,3,listen,\n"
                              "1,4,4,like,\n1,5,5,,80\n1,6,6,like,90\n");
  PrepareOptions options{.inputs = {log}, .out = folder / "s"};
  options.columns.labels = {"plus=kind==listen&played>=50", "skip=kind==listen&!played>=50",
                            "other=kind!=listen"};
  const PrepareReport report = prepare(options);
  const Store store(folder / "s");
  EXPECT_EQ(store.manifest().signals, (Lines{"plus", "skip", "other"}));
  std::vector<std::uint32_t> bits(6);
  store.read_signals(0, bits);
  EXPECT_EQ(bits, (std::vector<std::uint32_t>{1, 2, 2, 4, 0, 4}));
  // Where no other test has the answer: nothing is known of a like's share, and nobody asks.
  EXPECT_EQ(report.remarks,
            (Lines{"--label 'plus': one of kind, played is empty in 2 rows; taken as not set",
                   "--label 'other': kind is empty in 1 rows; taken as not set"}));
  write_file(folder / "log.csv", "user,item,time,kind,played\n1,1,1,listen,loud\n");
  options.overwrite = true;
  EXPECT_TRUE(has(message_of([&] { prepare(options); }), "played"));
}

TEST(Label, IsASignalBesideTheOthers) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv",
                              "user,item,time,rating,is_click\n1,1,1,5,0\n1,2,2,3.5,1\n1,3,3,,1\n");
  PrepareOptions options{.inputs = {log}, .out = folder / "s"};
  options.columns.labels = {"rating>=4", "rating < 4"};
  const PrepareReport report = prepare(options);
  const Store store(folder / "s");
  EXPECT_EQ(store.manifest().signals, (Lines{"is_click", "rating>=4", "rating<4"}));
  std::vector<std::uint32_t> bits(3);
  store.read_signals(0, bits);
  EXPECT_EQ(bits, (std::vector<std::uint32_t>{2, 5, 1}));
  EXPECT_EQ(store.numbers("rating")[0], 5.0f);  // stays a number as well
  ASSERT_EQ(report.remarks.size(), 2u);
  EXPECT_EQ(report.remarks[0], "--label 'rating>=4': rating is empty in 1 rows; taken as not set");

  options.overwrite = true;
  options.keep_signal = "rating>=4";
  EXPECT_EQ(prepare(options).without_signal, 2);
  EXPECT_EQ(histories_of(Store(folder / "s")), (Lines{"1: 1@1"}));

  options.columns.labels = {"rating>=4", "rating>=4"};
  EXPECT_TRUE(has(message_of([&] { prepare(options); }), "is there already"));
  options.columns.labels = {"stars>=4"};
  EXPECT_TRUE(
      has(message_of([&] { prepare(options); }), "there is no column 'stars'; it has: user"));
}

TEST(Label, IsRemarkedOnWhereItIsTheSameEverywhere) {
  TemporaryFolder folder;
  const auto log =
      write_file(folder / "log.csv", "user,item,time,rating\n1,1,1,5\n1,2,2,3\n1,3,3,1\n");
  PrepareOptions options{.inputs = {log}, .out = folder / "s"};
  options.columns.labels = {"rating>=4", "never=rating>=40&item>0", "rating>=1"};
  const PrepareReport report = prepare(options);
  ASSERT_EQ(report.remarks.size(), 2u);
  EXPECT_TRUE(has(report.remarks[0], "--label 'never' is set in none of the 3 events"));
  EXPECT_TRUE(has(report.remarks[0], "with the values of rating, item")) << report.remarks[0];
  EXPECT_TRUE(has(report.remarks[1], "--label 'rating>=1' is set in all of the 3 events"));

  options.overwrite = true;
  options.columns.labels = {"rating>=4"};
  options.keep_signal = "rating>=4";  // was asked for
  EXPECT_EQ(prepare(options).remarks, Lines{});
}

// Of labels, which may be long texts, of columns that are kept and of features.
TEST(Names, OfMoreThanTwoHundredBytesAreRefused) {
  TemporaryFolder folder;
  const auto refusal = [&](const std::string& column, const std::string& label) {
    const auto log = write_file(folder / "log.csv",
                                "user,item,time,kind," + column + "\n1,1,1,a,1\n1,2,2,b,0\n");
    PrepareOptions options{.inputs = {log}, .out = folder / "s", .overwrite = true};
    if (!label.empty()) options.columns.labels = {label};
    return message_of([&] { prepare(options); });
  };
  const std::string longest(192, 'x'), longer = longest + "y";
  EXPECT_EQ(refusal("is_click", "kind==a" + longest), "");  // 7 of 199
  EXPECT_EQ(refusal("is_click", longest + "12345678=kind==a"), "");
  EXPECT_TRUE(
      has(refusal("is_click", "kind==a" + longer + "z"),
          "has a name of 201 bytes; a store keeps names of 200 at most: give it one, as in"));
  EXPECT_EQ(refusal("is_click", "a=kind==b" + longer + "z"), "");  // the text may be long
  EXPECT_EQ(refusal("is_123456" + longest.substr(1), ""), "");
  const std::string words = refusal("is_1234567" + longest.substr(1), "");
  EXPECT_TRUE(has(words, "log.csv': column 'is_1234567xx")) << words;
  EXPECT_TRUE(has(words, "at most: rename it")) << words;
  EXPECT_LT(words.size(), 300u);
  EXPECT_TRUE(has(
      message_of([&] { parse_feature_requests({longest + "123456789:bag"}, FeatureOwner::kItem); }),
      "a store keeps names of 200 at most: rename the column"));
}

TEST(Label, KnowsTheRatingOfMovieLensFilesWithoutAHeader) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "ratings.dat", "1::10::5::1\n1::11::2::2\n1::12::4::3\n");
  PrepareOptions options{.format = LogFormat::kMovieLens, .inputs = {log}, .out = folder / "s"};
  options.columns.labels = {"rating>=4"};
  options.keep_signal = "rating>=4";
  prepare(options);
  EXPECT_EQ(histories_of(Store(folder / "s")), (Lines{"1: 10@1 12@3"}));
}

TEST(Deduplicate, KeepsTheFirstOfRowsThatSayTheSame) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv",
                              "user,item,time,is_click\n"
                              "2,7,5,1\n1,7,5,0\n1,8,5,0\n1,7,5,1\n1,7,9,0\n2,7,5,0\n1,8,5,0\n");
  PrepareOptions options{
      .inputs = {log}, .out = folder / "s", .overwrite = true, .repeats = Repeats::kDropEvents};
  EXPECT_EQ(prepare(options).repeated, 3);
  const Store store(folder / "s");
  EXPECT_EQ(histories_of(store), (Lines{"1: 7@5 8@5 7@9", "2: 7@5"}));
  std::vector<std::uint32_t> bits(4);
  store.read_signals(0, bits);
  EXPECT_EQ(bits, (std::vector<std::uint32_t>{0, 0, 0, 1}));
  options.repeats = Repeats::kDropItems;
  EXPECT_EQ(prepare(options).repeated, 4);
  EXPECT_EQ(histories_of(Store(folder / "s")), (Lines{"1: 7@5 8@5", "2: 7@5"}));
}

TEST(Deduplicate, NeedsTimesToTellARepeatedEvent) {
  TemporaryFolder folder;
  // A row without a time leaves only the order of the file.
  const auto log = write_file(folder / "log.csv", "user,item,time\n1,7,5\n1,8,\n1,7,1\n1,7,5\n");
  PrepareOptions options{.inputs = {log}, .out = folder / "s", .repeats = Repeats::kDropEvents};
  EXPECT_TRUE(has(message_of([&] { prepare(options); }), "--deduplicate-items"));
  options.repeats = Repeats::kDropItems;
  EXPECT_EQ(prepare(options).repeated, 2);
  EXPECT_EQ(histories_of(Store(folder / "s")), (Lines{"1: 7 8"}));
}

TEST(Deduplicate, ComesBeforeTheCoreAndAgreesWithAPlainSetInAnyMemory) {
  TemporaryFolder folder;
  PhiloxStream random(5);
  std::string text = "user,item,time\n";
  struct Event {
    std::int64_t user, time, place, item;
    auto operator<=>(const Event&) const = default;
  };
  std::vector<Event> events;
  for (std::int64_t i = 0; i < 3000; ++i) {
    const Event event{static_cast<std::int64_t>(random.below(60)),
                      static_cast<std::int64_t>(random.below(8)), i,
                      static_cast<std::int64_t>(random.below(90))};
    events.push_back(event);
    text += fmt::format("{},{},{}\n", event.user, event.item, event.time);
  }
  const auto log = write_file(folder / "log.csv", text);
  std::sort(events.begin(), events.end());
  for (const Repeats repeats : {Repeats::kDropEvents, Repeats::kDropItems}) {
    const bool by_item = repeats == Repeats::kDropItems;
    for (const std::int64_t minimum : {0, by_item ? 20 : 25}) {
      std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> seen;
      std::vector<Event> kept;
      for (const Event& event : events) {
        if (seen.emplace(event.user, event.item, by_item ? 0 : event.time).second) {
          kept.push_back(event);
        }
      }
      const std::size_t unique = kept.size();
      for (bool changed = true; changed;) {
        std::map<std::int64_t, std::int64_t> users, items;
        for (const Event& event : kept) ++users[event.user], ++items[event.item];
        changed = std::erase_if(kept, [&](const Event& event) {
                    return users[event.user] < minimum || items[event.item] < minimum;
                  }) > 0;
      }
      Lines wanted;
      for (std::size_t i = 0; i < kept.size(); ++i) {
        if (i == 0 || kept[i].user != kept[i - 1].user) {
          wanted.push_back(std::to_string(kept[i].user) + ":");
        }
        wanted.back() += fmt::format(" {}@{}", kept[i].item, kept[i].time);
      }
      ASSERT_FALSE(wanted.empty());
      ASSERT_EQ(minimum > 0, kept.size() < unique);
      for (const std::size_t memory : {std::size_t{2} << 30, std::size_t{100'000}}) {
        SCOPED_TRACE(fmt::format("{} {} {}", by_item, minimum, memory));
        const PrepareReport report = prepare({.inputs = {log},
                                              .out = folder / "s",
                                              .overwrite = true,
                                              .repeats = repeats,
                                              .min_user = minimum,
                                              .min_item = minimum,
                                              .memory_bytes = memory});
        EXPECT_EQ(report.repeated, 3000 - static_cast<std::int64_t>(unique));
        EXPECT_EQ(report.filtered, static_cast<std::int64_t>(unique - kept.size()));
        Store(folder / "s").verify();
        EXPECT_EQ(histories_of(Store(folder / "s")), wanted);
      }
    }
  }
}

TEST(Report, CountsUsersWithTooFewEvents) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv",
                              "user,item\n1,1\n2,1\n2,2\n3,1\n3,2\n3,3\n4,1\n4,2\n4,3\n4,4\n");
  PrepareOptions options{.inputs = {log}, .out = folder / "s"};
  EXPECT_EQ(prepare(options).short_users, 2);
  options.overwrite = true;
  options.min_user = 3;
  EXPECT_EQ(prepare(options).short_users, 0);
}

TEST(Report, SaysWhatAnItemTableIsOfNoUseFor) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv", "user,item,time\n1,10,1\n1,20,2\n1,30,3\n");
  const auto remark = [&](const std::string& table) {
    const PrepareReport report = prepare({.inputs = {log},
                                          .out = folder / "s",
                                          .overwrite = true,
                                          .item_tables = {write_file(folder / "table", table)}});
    EXPECT_LE(report.remarks.size(), 1u);
    return report.remarks.empty() ? "" : report.remarks[0];
  };
  EXPECT_EQ(remark("item,title\n10,a\n20,b\n30,c\n"), "");
  EXPECT_TRUE(
      has(remark("item,genre\n10,a\n"), "table': it has no column of titles (title, name, "));
  EXPECT_TRUE(has(remark(""), "table': it is empty, so `recommend` shows ids only"));
  const std::string partly = remark("item,title\n10,a\n10,b\n99,x\n98,y\n20\n30,\"c\n97,d\n");
  EXPECT_TRUE(has(partly,
                  "1 of 3 items have a title in it; 2 rows name no item of the store; 1 rows "
                  "have too few columns; 2 lines are lost to quotes never closed, the first "
                  "at line 7"))
      << partly;
}

}  // namespace
}  // namespace turbogr::data
