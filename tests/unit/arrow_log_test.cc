#include "turbogr/data/arrow/arrow_log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/arrow.h"
#include "tests/support/histories.h"
#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/arrow/arrow_csv.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

using test::ArrowSource;
using test::ArrowValues;
using test::booleans;
using test::list;
using test::numbers;
using test::strings;
using test::TemporaryFolder;
using Lines = std::vector<std::string>;
using Ints = std::vector<std::int64_t>;

// Batches through prepare, in the options given.
struct Prepared {
  TemporaryFolder folder;
  PrepareReport report;
  Lines lines;

  explicit Prepared(std::vector<std::vector<ArrowValues>> batches, PrepareOptions options = {}) {
    ArrowSource source(std::move(batches));
    options.streams = {{"frame", source.stream()}};
    options.out = folder / "s";
    report = prepare(options);
    store().verify();
    lines = test::histories_of(store());
    EXPECT_EQ(source.lent(), 0) << "schemas and batches that were never released";
  }
  Store store() const { return Store(folder / "s"); }
};

std::string refusal(std::vector<std::vector<ArrowValues>> batches, PrepareOptions options = {}) {
  return test::message_of([&] { Prepared(std::move(batches), std::move(options)); });
}

std::vector<ArrowValues> small_log() {
  return {numbers("user_id", "l", Ints{9, 10, 9}), numbers("item_id", "l", Ints{7, 8, 5}),
          numbers("timestamp", "l", Ints{20, 5, 10})};
}

TEST(ArrowLog, IsSortedLikeAnyOther) {
  EXPECT_EQ(Prepared({small_log()}).lines, (Lines{"9: 5@10 7@20", "10: 8@5"}));
}

TEST(ArrowLog, GivesTheBytesOfTheSameRowsAsText) {
  TemporaryFolder folder;
  const auto csv = test::write_file(folder / "log.csv",
                                    "user_id,item_id,timestamp,is_click,rating\n"
                                    "9,7,20,1,4.5\n10,8,5,0,\n9,5,10,1,3\n");
  prepare({.inputs = {csv}, .out = folder / "text"});
  std::vector<ArrowValues> log = small_log();
  log.push_back(booleans("is_click", {1, 0, 1}));
  log.push_back(numbers("rating", "g", std::vector<double>{4.5, 0, 3}, {1, 0, 1}));
  const Prepared arrow({log});
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "text")) {
    ++files;
    EXPECT_EQ(test::read_file(entry.path()),
              test::read_file(arrow.folder.path() / "s" / entry.path().filename()))
        << entry.path();
  }
  EXPECT_GE(files, 7);
}

// 150,000 events in two batches: many runs, users that come back, ids past the bitmap and below
// zero, a missing id in the middle, marks and numbers that are missing at times.
std::vector<std::vector<ArrowValues>> many_events(bool odd) {
  std::vector<std::vector<ArrowValues>> batches;
  PhiloxStream random(7);
  for (int batch = 0; batch < 2; ++batch) {
    constexpr std::size_t kCount = 75'000;
    Ints users(kCount), items(kCount), times(kCount);
    std::vector<double> ratings(kCount);
    std::vector<int> clicks(kCount), rated(kCount), known(kCount, 1);
    for (std::size_t i = 0; i < kCount; ++i) {
      users[i] = static_cast<std::int64_t>(random.below(3000));
      items[i] = static_cast<std::int64_t>(random.below(500));
      times[i] = 1'600'000'000 + static_cast<std::int64_t>(random.below(40));
      clicks[i] = random.below(2) == 1 ? 1 : 0;
      ratings[i] = static_cast<double>(random.below(5));
      rated[i] = random.below(9) > 0 ? 1 : 0;
      if (odd && i % 9000 == 17) users[i] = -users[i] - 1;
      if (odd && i % 9000 == 18) items[i] = (std::int64_t{1} << 62) + items[i];
      if (odd && i % 20000 == 19) known[i] = 0;
    }
    batches.push_back({numbers("user_id", "l", users, known), numbers("item_id", "l", items),
                       numbers("timestamp", "l", times), booleans("is_click", clicks),
                       numbers("rating", "g", ratings, rated)});
  }
  return batches;
}

TEST(ArrowLog, GivesTheSameBytesWhateverTheThreadsAndTheMemory) {
  for (const bool odd : {false, true}) {
    PrepareOptions options;
    options.bad_rows.skip = true;
    options.threads = 1;
    const Prepared one(many_events(odd), options);
    EXPECT_EQ(one.report.rows, 150'000);
    EXPECT_EQ(one.report.bad_rows, odd ? 8 : 0);
    EXPECT_EQ(one.report.sorted_runs, 0u);
    for (const auto& [threads, megabytes] : {std::pair{2, 2048}, {5, 2048}, {1, 4}, {3, 4}}) {
      options.threads = threads;
      options.memory_bytes = static_cast<std::size_t>(megabytes) << 20;
      const Prepared other(many_events(odd), options);
      EXPECT_EQ(other.report.sorted_runs > 0, megabytes < 100);
      EXPECT_EQ(other.report.remarks, one.report.remarks);
      for (const auto& entry : std::filesystem::directory_iterator(one.folder.path() / "s")) {
        EXPECT_EQ(test::read_file(entry.path()),
                  test::read_file(other.folder.path() / "s" / entry.path().filename()))
            << entry.path() << ", " << threads << " threads, " << megabytes << " MB";
      }
    }
  }
}

template <class T>
class ArrowIntegers : public testing::Test {};
struct Int8 {
  using Type = std::int8_t;
  static constexpr const char* kFormat = "c";
};
struct Uint8 {
  using Type = std::uint8_t;
  static constexpr const char* kFormat = "C";
};
struct Int16 {
  using Type = std::int16_t;
  static constexpr const char* kFormat = "s";
};
struct Uint16 {
  using Type = std::uint16_t;
  static constexpr const char* kFormat = "S";
};
struct Int32 {
  using Type = std::int32_t;
  static constexpr const char* kFormat = "i";
};
struct Uint32 {
  using Type = std::uint32_t;
  static constexpr const char* kFormat = "I";
};
struct Uint64 {
  using Type = std::uint64_t;
  static constexpr const char* kFormat = "L";
};
struct Float {
  using Type = float;
  static constexpr const char* kFormat = "f";
};
struct Double {
  using Type = double;
  static constexpr const char* kFormat = "g";
};
using IntegerTypes =
    testing::Types<Int8, Uint8, Int16, Uint16, Int32, Uint32, Uint64, Float, Double>;
TYPED_TEST_SUITE(ArrowIntegers, IntegerTypes);

TYPED_TEST(ArrowIntegers, AreIdsInEveryWidth) {
  using T = typename TypeParam::Type;
  const Prepared prepared({{numbers("user_id", TypeParam::kFormat, std::vector<T>{9, 100, 9}),
                            numbers("item_id", TypeParam::kFormat, std::vector<T>{7, 8, 5}),
                            numbers("timestamp", "I", std::vector<std::uint32_t>{20, 5, 10})}});
  EXPECT_EQ(prepared.lines, (Lines{"9: 5@10 7@20", "100: 8@5"}));
  EXPECT_EQ(prepared.store().user_ids().kind(), IdKind::kInt64);
}

TEST(ArrowLog, RefusesIdsThatNoInt64HoldsByRowAndColumn) {
  const std::uint64_t large = std::uint64_t{1} << 63;
  const std::vector<ArrowValues> log = {
      numbers("user_id", "L", std::vector<std::uint64_t>{1, large}),
      numbers("item_id", "l", Ints{7, 8}), numbers("timestamp", "l", Ints{1, 2})};
  const std::string text = refusal({log});
  EXPECT_NE(text.find("9223372036854775808"), std::string::npos) << text;
  EXPECT_NE(text.find("user_id"), std::string::npos) << text;
  EXPECT_NE(text.find("frame"), std::string::npos) << text;
  PrepareOptions skip;
  skip.bad_rows.skip = true;
  EXPECT_EQ(Prepared({log}, skip).report.bad_rows, 1);
  PrepareOptions as_text;
  as_text.ids = "string";
  EXPECT_EQ(Prepared({log}, as_text).lines, (Lines{"1: 7@1", "9223372036854775808: 8@2"}));
}

TEST(ArrowLog, RefusesFractionsAsIds) {
  const std::string text = refusal({{numbers("user_id", "g", std::vector<double>{1, 2.5}),
                                     numbers("item_id", "l", Ints{7, 8})}});
  EXPECT_NE(text.find("2.5"), std::string::npos) << text;
}

TEST(ArrowLog, CountsMissingIdsAsBadRowsAndMissingTimesAsNone) {
  PrepareOptions skip;
  skip.bad_rows.skip = true;
  const Prepared prepared({{numbers("user_id", "l", Ints{1, 2, 3}, {1, 0, 1}),
                            strings("item_id", "u", {"a", "b", ""}, {1, 1, 0}),
                            numbers("timestamp", "l", Ints{5, 6, 7}, {1, 1, 1})}},
                          skip);
  EXPECT_EQ(prepared.lines, (Lines{"1: a@5"}));
  EXPECT_EQ(prepared.report.bad_rows, 2);
  const Prepared timeless(
      {{numbers("user_id", "l", Ints{1, 1}), numbers("item_id", "l", Ints{8, 7}),
        numbers("timestamp", "l", Ints{9, 3}, {1, 0})}});
  EXPECT_EQ(timeless.lines, (Lines{"1: 8 7"}));
  const Prepared missing_as_nan({{numbers("user_id", "g", std::vector<double>{1, std::nan("")}),
                                  numbers("item_id", "l", Ints{8, 7})}},
                                skip);
  EXPECT_EQ(missing_as_nan.report.bad_rows, 1);
}

TEST(ArrowLog, ReadsStringsOfEveryKind) {
  const std::string long_id = "an id of more than twelve bytes";
  for (const char* format : {"u", "U", "vu"}) {
    const Prepared prepared({{strings("user_id", format, {"b", long_id, "b"}),
                              strings("item_id", format, {"x", "y", long_id}),
                              numbers("timestamp", "l", Ints{2, 1, 1})}});
    EXPECT_EQ(prepared.lines, (Lines{long_id + ": y@1", "b: " + long_id + "@1 x@2"})) << format;
  }
}

TEST(ArrowLog, ReadsDictionaries) {
  const Prepared prepared(
      {{test::dictionary(numbers("user_id", "c", std::vector<std::int8_t>{1, 0, 1}),
                         strings("", "u", {"ann", "bob"})),
        test::dictionary(numbers("item_id", "S", std::vector<std::uint16_t>{0, 1, 1}),
                         numbers("", "l", Ints{70, 80})),
        numbers("timestamp", "l", Ints{1, 2, 3})}});
  EXPECT_EQ(prepared.lines, (Lines{"ann: 80@2", "bob: 70@1 80@3"}));
}

TEST(ArrowLog, RefusesAnIndexPastItsDictionary) {
  const std::string text =
      refusal({{test::dictionary(numbers("user_id", "i", std::vector<std::int32_t>{0, 7}),
                                 strings("", "u", {"ann", "bob"})),
                numbers("item_id", "l", Ints{1, 2})}});
  EXPECT_NE(text.find("number 7 of a dictionary of 2"), std::string::npos) << text;
}

TEST(ArrowLog, ReadsTimestampsOfEveryUnitAndZone) {
  const Ints seconds = {1'600'000'000, 1'600'000'001};
  for (const auto& [format, scale] :
       std::vector<std::pair<std::string, std::int64_t>>{{"tss:", 1},
                                                         {"tsm:UTC", 1000},
                                                         {"tsu:Europe/Paris", 1'000'000},
                                                         {"tsn:", 1'000'000'000},
                                                         {"tdm", 1000}}) {
    Ints values = seconds;
    for (std::int64_t& value : values) value *= scale;
    const Prepared prepared(
        {{numbers("user_id", "l", Ints{1, 1}), numbers("item_id", "l", Ints{7, 8}),
          numbers("timestamp", format, values)}});
    EXPECT_EQ(prepared.lines, (Lines{"1: 7@1600000000 8@1600000001"})) << format;
    EXPECT_EQ(prepared.store().time_unit(), TimeUnit::kSeconds) << format;
  }
  const Prepared fractions(
      {{numbers("user_id", "l", Ints{1, 1}), numbers("item_id", "l", Ints{7, 8}),
        numbers("timestamp", "tsn:", Ints{1'500'999'999, -1})}});
  EXPECT_EQ(fractions.lines, (Lines{"1: 8@-1 7@1500"}));
  EXPECT_EQ(fractions.store().time_unit(), TimeUnit::kMilliseconds);
  const Prepared days({{numbers("user_id", "l", Ints{1}), numbers("item_id", "l", Ints{7}),
                        numbers("date", "tdD", std::vector<std::int32_t>{2})}});
  EXPECT_EQ(days.lines, (Lines{"1: 7@172800"}));
  const Prepared decimal({{numbers("user_id", "l", Ints{1}), numbers("item_id", "l", Ints{7}),
                           numbers("timestamp", "g", std::vector<double>{1.25})}});
  EXPECT_EQ(decimal.lines, (Lines{"1: 7@1250"}));
  const Prepared text({{numbers("user_id", "l", Ints{1}), numbers("item_id", "l", Ints{7}),
                        strings("timestamp", "u", {"1970-01-02T00:00:00Z"})}});
  EXPECT_EQ(text.lines, (Lines{"1: 7@86400"}));
}

TEST(ArrowLog, RefusesTimesPastTheNextMillennia) {
  const std::string text =
      refusal({{numbers("user_id", "l", Ints{1}), numbers("item_id", "l", Ints{7}),
                numbers("timestamp", "l", Ints{1'600'000'000'000'000})}});
  EXPECT_NE(text.find("times are seconds or milliseconds"), std::string::npos) << text;
}

TEST(ArrowLog, KeepsSignalsLabelsNumbersAndFeatures) {
  std::vector<ArrowValues> log = small_log();
  log.push_back(booleans("is_click", {1, 1, 0}, {1, 0, 1}));
  log.push_back(numbers("like", "C", std::vector<std::uint8_t>{0, 0, 2}));
  log.push_back(
      numbers("rating", "e", std::vector<std::uint16_t>{0x4400, 0x4200, 0x3c00}));  // 4 3 1
  log.push_back(strings("tab", "u", {"home", "", "search"}, {1, 0, 1}));
  PrepareOptions options;
  options.columns.labels = {"rating>=3"};
  options.columns.features = {"tab"};
  const Prepared prepared({log}, options);
  const Store store = prepared.store();
  EXPECT_EQ(store.manifest().signals, (Lines{"is_click", "like", "rating>=3"}));
  std::vector<std::uint32_t> bits(3);
  store.read_signals(0, bits);
  EXPECT_EQ(bits, (std::vector<std::uint32_t>{0b010, 0b101, 0b100}));
  const auto ratings = store.numbers("rating");
  EXPECT_EQ(std::vector<float>(ratings.begin(), ratings.end()), (std::vector<float>{1, 4, 3}));
  const FeatureColumn tab = store.feature(FeatureOwner::kEvent, "tab");
  EXPECT_EQ(tab.value(tab.codes[0]), "search");
  EXPECT_EQ(tab.codes[2], 0);
  PrepareOptions kept;
  kept.keep_signal = "like";
  EXPECT_EQ(Prepared({log}, kept).lines, (Lines{"9: 5@10"}));
}

TEST(ArrowLog, MakesLabelsOfTextsAndNumbersAsFromText) {
  TemporaryFolder folder;
  const std::vector<std::string> labels = {"plus=kind==listen&played>=50",
                                           "skip=kind==listen&!played>=50", "no=kind!=listen"};
  PrepareOptions text{
      .inputs = {test::write_file(folder / "log.csv",
                                  "user_id,item_id,timestamp,kind,played\n"
                                  "1,1,1,listen,50\n1,2,2,listen,49.5\n1,3,3,listen,\n"
                                  "1,4,4,like,\n1,5,5,,80\n")},
      .out = folder / "text"};
  text.columns.labels = labels;
  const PrepareReport wanted = prepare(text);
  PrepareOptions options;
  options.columns.labels = labels;
  const std::vector<double> played = {50, 49.5, 0, 0, 80};
  const std::vector<int> known = {1, 1, 0, 0, 1};
  const auto kinds = [] {
    return test::dictionary(
        numbers("kind", "c", std::vector<std::int8_t>{1, 1, 1, 0, 0}, {1, 1, 1, 1, 0}),
        strings("", "u", {"like", "listen"}));
  };
  const Prepared flat(
      {{numbers("user_id", "l", Ints{1, 1, 1, 1, 1}), numbers("item_id", "l", Ints{1, 2, 3, 4, 5}),
        numbers("timestamp", "l", Ints{1, 2, 3, 4, 5}), kinds(),
        numbers("played", "g", played, known)}},
      options);
  const Prepared sequential(
      {{numbers("user_id", "l", Ints{1}),
        list("item_id", {0, 5}, numbers("", "l", Ints{1, 2, 3, 4, 5})),
        list("timestamp", {0, 5}, numbers("", "l", Ints{1, 2, 3, 4, 5})),
        list("kind", {0, 5}, kinds()), list("played", {0, 5}, numbers("", "g", played, known))}},
      options);
  for (const Prepared* arrow : {&flat, &sequential}) {
    EXPECT_EQ(arrow->report.remarks, wanted.remarks);
    for (const auto& entry : std::filesystem::directory_iterator(folder / "text")) {
      EXPECT_EQ(test::read_file(entry.path()),
                test::read_file(arrow->folder.path() / "s" / entry.path().filename()))
          << entry.path();
    }
  }
  const std::string wrong =
      refusal({{numbers("user_id", "l", Ints{1}), numbers("item_id", "l", Ints{7}),
                strings("kind", "u", {"listen"}), strings("played", "u", {"loud"})}},
              options);
  EXPECT_NE(wrong.find("played"), std::string::npos) << wrong;
}

TEST(ArrowLog, ReadsARowAUser) {
  const std::vector<ArrowValues> log = {
      numbers("uid", "I", std::vector<std::uint32_t>{5, 6, 4, 3}),
      list("item_ids", {0, 2, 2, 5, 5},
           numbers("item", "I", std::vector<std::uint32_t>{7, 8, 9, 7, 7}), {1, 1, 1, 0}),
      list("timestamps", {0, 2, 2, 5, 5},
           numbers("item", "I", std::vector<std::uint32_t>{10, 5, 3, 3, 4}), {1, 1, 1, 0}),
      list("is_organic", {0, 2, 2, 5, 5},
           numbers("item", "C", std::vector<std::uint8_t>{1, 0, 0, 1, 1}), {1, 1, 1, 0})};
  const Prepared prepared({log});
  EXPECT_EQ(prepared.lines, (Lines{"4: 9@3 7@3 7@4", "5: 8@5 7@10"}));
  EXPECT_EQ(prepared.report.rows, 5);
  EXPECT_EQ(prepared.store().manifest().signals, (Lines{"is_organic"}));
}

TEST(ArrowLog, RefusesListsOfDifferentLengths) {
  const std::string text = refusal(
      {{numbers("user_id", "l", Ints{5}), list("item_id", {0, 2}, numbers("item", "l", Ints{7, 8})),
        list("timestamp", {0, 1}, numbers("item", "l", Ints{7}))}});
  EXPECT_NE(text.find("a list of 1 values beside 2 items"), std::string::npos) << text;
  const std::string flat =
      refusal({{numbers("user_id", "l", Ints{5}), numbers("item_id", "l", Ints{5}),
                list("timestamp", {0, 1}, numbers("item", "l", Ints{7}))}});
  EXPECT_NE(flat.find("the item column does not"), std::string::npos) << flat;
}

TEST(ArrowLog, TakesBatchesWithOffsetsAndEmptyOnes) {
  std::vector<ArrowValues> sliced = small_log();
  for (ArrowValues& column : sliced) {
    column.offset = 1;
    column.length = 2;
  }
  std::vector<ArrowValues> nothing = small_log();
  for (ArrowValues& column : nothing) column.length = 0;
  EXPECT_EQ(Prepared({nothing, sliced, nothing, small_log()}).lines,
            (Lines{"9: 5@10 5@10 7@20", "10: 8@5 8@5"}));
  EXPECT_NE(refusal({nothing}).find("no usable row"), std::string::npos);
}

TEST(ArrowLog, PassesOnWhatTheProducerSays) {
  TemporaryFolder folder;
  ArrowSource source({small_log()}, "the disk is on fire");
  const std::string text = test::message_of([&] {
    prepare({.streams = {{"frame", source.stream()}}, .out = folder / "s"});
  });
  EXPECT_NE(
      text.find("'frame': its Arrow stream could not give its next batch: the disk is on fire"),
      std::string::npos)
      << text;
  EXPECT_EQ(source.lent(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ArrowLog, RefusesAStreamThatWasRead) {
  TemporaryFolder folder;
  ArrowSource source({small_log()});
  prepare({.streams = {{"frame", source.stream()}}, .out = folder / "s"});
  const std::string text = test::message_of([&] {
    prepare({.streams = {{"frame", source.stream()}}, .out = folder / "t"});
  });
  EXPECT_NE(text.find("has been read already"), std::string::npos) << text;
}

TEST(ArrowLog, NamesTypesItCannotRead) {
  std::vector<ArrowValues> log = small_log();
  log.push_back(numbers("rating", "d:10,2", Ints{1, 2, 3}));
  const std::string text = refusal({log});
  EXPECT_NE(text.find("'frame': column 'rating' has the Arrow type 'd:10,2'"), std::string::npos)
      << text;
  PrepareOptions without;
  without.columns.numbers = {"none"};
  EXPECT_EQ(Prepared({log}, without).lines.size(), 2U);
}

TEST(ArrowLog, SaysWhichColumnsThereAre) {
  const std::string text =
      refusal({{numbers("who", "l", Ints{1}), numbers("item_id", "l", Ints{1})}});
  EXPECT_NE(text.find("no user column"), std::string::npos) << text;
  EXPECT_NE(text.find("who, item_id"), std::string::npos) << text;
}

TEST(ArrowLog, TakesSeveralStreamsOfTheSameColumnsOnly) {
  TemporaryFolder folder;
  ArrowSource first({small_log()});
  ArrowSource second({small_log()});
  PrepareOptions options;
  options.streams = {{"first", first.stream()}, {"second", second.stream()}};
  options.out = folder / "s";
  EXPECT_EQ(prepare(options).events, 6);
  std::vector<ArrowValues> text_ids = small_log();
  text_ids[0] = strings("user_id", "u", {"a", "b", "c"});
  ArrowSource third({small_log()});
  ArrowSource fourth({text_ids});
  options.streams = {{"third", third.stream()}, {"fourth", fourth.stream()}};
  options.out = folder / "t";
  const std::string text = test::message_of([&] { prepare(options); });
  EXPECT_NE(text.find("has text where the logs before it have numbers"), std::string::npos) << text;
}

TEST(ArrowCsv, WritesWhatATableHolds) {
  TemporaryFolder folder;
  ArrowSource source({{numbers("item_id", "l", Ints{1, 2, 3}),
                       strings("title", "u", {"a, \"b\"", "", "c"}, {1, 0, 1}),
                       list("tags", {0, 2, 2, 3}, strings("item", "u", {"x", "y", "z"})),
                       numbers("price", "g", std::vector<double>{0.5, 2, 1e300})}});
  ArrowStream stream("items", source.stream());
  write_arrow_csv(stream, folder / "t.csv");
  EXPECT_EQ(test::read_file(folder / "t.csv"),
            "item_id,title,tags,price\n1,\"a, \"\"b\"\"\",x|y,0.5\n2,,,2\n3,c,z,1e+300\n");
}

}  // namespace
}  // namespace turbogr::data
