#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/features/feature_text.h"
#include "turbogr/data/features/vocabulary.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/stats.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;
using test::has;
using test::message_of;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;

std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// One word a row: the value, the values of a bag joined with +, a number, or - for none.
std::vector<std::string> words_of(const Store& store, FeatureOwner owner, const char* name) {
  const FeatureColumn column = store.feature(owner, name);
  std::vector<std::string> words;
  for (std::int64_t row = 0; row < store.manifest().rows_of(owner); ++row) {
    const auto at = static_cast<std::size_t>(row);
    std::string word;
    if (column.about.kind == FeatureKind::kCategory) {
      word = column.value(column.codes[at]);
    } else if (column.about.kind == FeatureKind::kNumber) {
      word = std::isnan(column.numbers[at]) ? "" : fmt::format("{}", column.numbers[at]);
    } else {
      for (const std::int32_t code : column.bag(row)) {
        word += (word.empty() ? "" : "+") + std::string(column.value(code));
      }
    }
    words.push_back(word.empty() ? "-" : word);
  }
  return words;
}

using Words = std::vector<std::string>;

TEST(PrepareFeatures, OfItemsAndUsersComeFromTheirTables) {
  TemporaryFolder folder;
  PrepareOptions options{
      .inputs = {write_file(folder / "log.csv", "user_id,item_id\nbo,3\nal,1\nbo,2\ncy,3\n")},
      .out = folder / "s"};
  // The id is found by its name; item 9 has no events, item 2 no row, item 3 two rows.
  options.item_tables = {write_file(folder / "items.csv",
                                    "category,item_id,tags,price\n"
                                    "shoe,3,x|y,1.5\n"
                                    "hat,9,z,2\n"
                                    "bag,1, y | x |,cheap\n"
                                    "\"coat, long\",3,,\n")};
  options.item_features = {"category", "tags", "price:number"};
  options.user_tables = {write_file(folder / "users.tsv", "name\tage\nbo\t30\nal\t\nzoe\t9\n")};
  options.user_features = {"age"};
  const PrepareReport report = prepare(options);
  const Store store(options.out);
  store.verify();
  EXPECT_EQ(words_of(store, FeatureOwner::kItem, "category"), (Words{"bag", "-", "coat, long"}));
  EXPECT_EQ(words_of(store, FeatureOwner::kItem, "tags"), (Words{"y+x", "-", "-"}));
  EXPECT_EQ(words_of(store, FeatureOwner::kItem, "price"), (Words{"-", "-", "-"}));
  EXPECT_EQ(words_of(store, FeatureOwner::kUser, "age"), (Words{"-", "30", "-"}));
  // By first appearance in the table, whoever has events.
  const FeatureColumn category = store.feature(FeatureOwner::kItem, "category");
  EXPECT_EQ(category.value(1), "shoe");
  EXPECT_EQ(category.value(2), "hat");
  EXPECT_EQ(category.about.values, 4);
  ASSERT_EQ(store.manifest().feature_tables.size(), 2u);
  const FeatureTable& items = store.manifest().feature_tables[1];
  EXPECT_EQ(items.owner, FeatureOwner::kItem);
  EXPECT_EQ(items.rows, 4);
  EXPECT_EQ(items.without_events, 1);
  EXPECT_EQ(items.repeated, 1);
  EXPECT_EQ(items.without_row, 1);
  EXPECT_EQ(store.feature(FeatureOwner::kItem, "price").about.unparsable, 1);
  const std::string remarks = joined(report.remarks);
  EXPECT_TRUE(has(remarks, "1 of 4 rows speak of items without events")) << remarks;
  EXPECT_TRUE(has(remarks, "1 of 3 items have no row")) << remarks;
  EXPECT_TRUE(has(remarks, "1 rows repeat the id of another; the last one counts")) << remarks;
  EXPECT_TRUE(has(remarks,
                  "price: 1 fields are no numbers and count as missing, the first "
                  "'cheap' in line 4 of '" +
                      options.item_tables[0].path.string()))
      << remarks;
  EXPECT_TRUE(has(remarks, "1 of 3 rows speak of users without events")) << remarks;
  EXPECT_TRUE(has(joined(report.features), "item feature tags: bag, 3 values, 66.7 % missing"))
      << joined(report.features);
}

TEST(PrepareFeatures, OfEventsComeFromTheLogAndAreNumberedInOrder) {
  TemporaryFolder folder;
  PrepareOptions options{.inputs = {write_file(folder / "log.csv",
                                               "user_id,item_id,time,tab,place,speed,seen\n"
                                               "1,1,5,10,home|work,1,a\n"
                                               "1,2,4,9,,x,\n"
                                               "0,2,4,,work,2.5,b\n")},
                         .out = folder / "s"};
  options.columns.features = {"tab", "place", "speed:number", "seen:bag"};
  const PrepareReport report = prepare(options);
  const Store store(options.out);
  store.verify();
  EXPECT_EQ(words_of(store, FeatureOwner::kEvent, "tab"), (Words{"-", "9", "10"}));
  EXPECT_EQ(words_of(store, FeatureOwner::kEvent, "place"), (Words{"work", "-", "home+work"}));
  EXPECT_EQ(words_of(store, FeatureOwner::kEvent, "speed"), (Words{"2.5", "-", "1"}));
  EXPECT_EQ(words_of(store, FeatureOwner::kEvent, "seen"), (Words{"b", "-", "a"}));
  // Integers by value, not by their digits.
  EXPECT_EQ(store.feature(FeatureOwner::kEvent, "tab").value(1), "9");
  EXPECT_EQ(store.feature(FeatureOwner::kEvent, "tab").value(2), "10");
  EXPECT_TRUE(has(joined(report.remarks), "event feature speed: 1 fields are no numbers"));
  EXPECT_TRUE(has(joined(report.remarks), "event feature seen: no '|' in the first rows"));
}

// Six users with three items each; the tables speak of an item that nobody met (4), of one that is
// met once (3) and of others.
PrepareOptions items_nobody_met(const TemporaryFolder& folder, const std::string& prefix) {
  std::string log = "user_id,item_id\n";
  for (int user = 0; user < 6; ++user) {
    for (const int item : {1, 2, 5}) log += fmt::format("{},{}{}\n", user, prefix, item);
  }
  log += fmt::format("0,{}3\n", prefix);
  PrepareOptions options{.inputs = {write_file(folder / "log.csv", log)}, .out = folder / "s"};
  const auto id = [&](int item) { return prefix + std::to_string(item); };
  options.item_tables = {
      write_file(folder / "1.csv",
                 fmt::format("item_id,kind\n{},a\n{},b\n{},c\n{},d\n", id(4), id(3), id(1), id(9))),
      write_file(folder / "2.csv", fmt::format("item_id,title\n{},Seven\n", id(7)))};
  options.item_features = {"kind"};
  options.keep_items_without_events = true;
  options.overwrite = true;
  return options;
}

TEST(PrepareFeatures, ItemsWithoutEventsStayIfThatIsAskedFor) {
  for (const std::string prefix : {"", "item "}) {
    TemporaryFolder folder;
    PrepareOptions options = items_nobody_met(folder, prefix);
    const PrepareReport report = prepare(options);
    const Store store(options.out);
    store.verify();
    // Of 7 nothing but a title is known, of 2 and 5 nothing.
    const auto ids = [&](const Store& of) {
      Words words;
      for (std::int64_t i = 0; i < of.num_items(); ++i) {
        words.push_back(of.item_ids().kind() == IdKind::kString
                            ? std::string(of.item_ids().string(i)).substr(prefix.size())
                            : std::to_string(of.item_ids().integer(i)));
      }
      return words;
    };
    EXPECT_EQ(ids(store), (Words{"1", "2", "3", "4", "5", "9"}));
    EXPECT_EQ(words_of(store, FeatureOwner::kItem, "kind"), (Words{"c", "-", "b", "a", "-", "d"}));
    EXPECT_EQ(report.items_without_events, 2);
    EXPECT_EQ(store.manifest().items_without_events, 2);
    EXPECT_EQ(store.manifest().feature_tables[0].without_events, 0);
    EXPECT_TRUE(has(to_text(stats_of(store)), "items      6, 2 of them without events"));
    EXPECT_TRUE(has(to_json(stats_of(store)), "\"items_without_events\": 2"));

    // A filter takes events away, and items that no table speaks of.
    options.min_item = 6;
    options.memory_bytes = 8 << 10;
    options.out = folder / "core";
    prepare(options);
    const Store core(options.out);
    core.verify();
    EXPECT_EQ(ids(core), (Words{"1", "2", "3", "4", "5", "9"}));
    EXPECT_EQ(core.num_events(), 18);
    EXPECT_EQ(core.manifest().items_without_events, 3);
    options.min_item = 7;
    EXPECT_TRUE(has(message_of([&] { prepare(options); }), "no event is left"));

    options.min_item = 0;
    options.keep_items_without_events = false;
    options.out = folder / "without";
    prepare(options);
    EXPECT_EQ(ids(Store(options.out)), (Words{"1", "2", "3", "5"}));
    EXPECT_EQ(Store(options.out).manifest().items_without_events, 0);
  }
}

// They cannot stay, and are none that have no events.
TEST(PrepareFeatures, ItemsWhoseIdsAreNoNumbersAreBadRowsOfACatalogueOfNumbers) {
  TemporaryFolder folder;
  PrepareOptions options = items_nobody_met(folder, "");
  write_file(folder / "1.csv", "item_id,kind\n4,a\nx3,b\n1,c\n009,d\n");
  const std::string where = "1.csv', line 3, column item_id: not a number: 'x3'; ";
  const std::string words = message_of([&] { prepare(options); });
  EXPECT_TRUE(has(words, where + "--keep-items-without-events keeps items as the log has them"))
      << words;
  EXPECT_TRUE(has(words, "--ids string takes any text")) << words;
  options.bad_rows.skip = true;
  const PrepareReport report = prepare(options);
  EXPECT_EQ(report.bad_rows, 2);
  EXPECT_EQ(report.items_without_events, 1);
  const std::string remarks = joined(report.remarks);
  EXPECT_TRUE(has(remarks, "2 rows left out: not a number")) << remarks;
  EXPECT_TRUE(has(remarks, where)) << remarks;
  EXPECT_TRUE(has(remarks, "2 rows cannot be read")) << remarks;
  EXPECT_FALSE(has(remarks, "without events and are left out")) << remarks;
}

TEST(PrepareFeatures, AWrongCountOfItemsWithoutEventsIsFound) {
  TemporaryFolder folder;
  const PrepareOptions options = items_nobody_met(folder, "");
  prepare(options);
  Manifest manifest = Store(options.out).manifest();
  manifest.items_without_events = 1;
  write_file(options.out / "manifest.json", manifest.to_json());
  EXPECT_TRUE(has(message_of([&] { Store(options.out).verify(); }),
                  "2 items have no events, and the manifest says 1"));
}

TEST(PrepareFeatures, KeepingItemsWithoutEventsWantsFeatures) {
  TemporaryFolder folder;
  PrepareOptions options = items_nobody_met(folder, "");
  options.item_features.clear();
  EXPECT_TRUE(has(message_of([&] { prepare(options); }), "name some with --item-features"));
}

TEST(PrepareFeatures, AreTheSameBytesInLittleAndMuchMemory) {
  TemporaryFolder folder;
  PhiloxStream random(5);
  std::string log = "user_id,item_id,timestamp,tab,where\n";
  std::string items = "item_id,author,tags,price\n";
  std::string users = "user_id,town\n";
  for (int i = 0; i < 5000; ++i) {
    log += fmt::format("u{},{},{},{},{}\n", random.below(300), random.below(700), random.below(40),
                       random.below(12), random.below(2) == 0 ? "a|b" : "c");
  }
  for (int i = 0; i < 2500; ++i) {
    items += fmt::format("{},author{},{}|t{}|t{},{}\n", random.below(900), random.below(600), i % 7,
                         random.below(30), random.below(30), random.below(1000));
    users += fmt::format("u{},town{}\n", random.below(350), random.below(80));
  }
  PrepareOptions options{.inputs = {write_file(folder / "log.csv", log)}};
  options.item_tables = {write_file(folder / "items.csv", items)};
  options.item_features = {"author", "tags", "price:number"};
  options.user_tables = {write_file(folder / "users.csv", users)};
  options.user_features = {"town"};
  options.columns.features = {"tab", "where"};
  for (const std::int64_t minimum : {0, 5}) {
    options.min_user = minimum;
    options.min_item = minimum;
    options.memory_bytes = std::size_t{2} << 30;
    const fs::path much = folder / fmt::format("much{}", minimum);
    options.out = much;
    prepare(options);
    Store(much).verify();
    for (const std::size_t kilobytes : {8u, 60u}) {
      options.memory_bytes = kilobytes << 10;
      options.out = folder / fmt::format("{}-{}", minimum, kilobytes);
      EXPECT_GT(prepare(options).sorted_runs, 1u);
      for (const auto& entry : fs::directory_iterator(much)) {
        EXPECT_EQ(read_file(entry.path()), read_file(options.out / entry.path().filename()))
            << entry.path();
      }
    }
  }
}

TEST(PrepareFeatures, AColumnThatIsNotThereIsNamedWithThoseThatAre) {
  TemporaryFolder folder;
  PrepareOptions options{.inputs = {write_file(folder / "log.csv", "user_id,item_id\n1,1\n")},
                         .out = folder / "s"};
  const auto message = [&] { return message_of([&] { prepare(options); }); };
  options.item_features = {"colour"};
  EXPECT_TRUE(has(message(), "there is no table about items; give one with --item-table"));
  options.item_tables = {write_file(folder / "items.csv", "item_id,size,age\n1,2,3\n")};
  EXPECT_TRUE(has(message(), "no column 'colour'; '" + options.item_tables[0].path.string() +
                                 "' has: item_id, size, age"))
      << message();
  const std::vector<TableInput> tables =
      std::exchange(options.item_tables, {write_file(folder / "empty.csv", "")});
  EXPECT_TRUE(has(message(), "empty.csv' is empty; give a table with a header and rows"));
  options.item_tables = tables;
  options.item_features = {"item_id"};
  EXPECT_TRUE(has(message(), "holds the ids of the items"));
  options.item_features = {"size:colour"};
  EXPECT_TRUE(has(message(), "there are category, number, bag and bag:SEPARATOR"));
  options.item_features = {"size", "size:number"};
  EXPECT_TRUE(has(message(), "twice"));
  options.item_features = {"size:bag:--"};
  EXPECT_TRUE(has(message(), "one character, or bar, comma"));
  options.item_features = {":bag"};
  EXPECT_TRUE(has(message(), "has no name"));
  options.item_features.assign(33, "size");
  EXPECT_TRUE(has(message(), "32 at most"));
  options.item_features = {};
  options.columns.features = {"hour"};
  EXPECT_TRUE(has(message(), "there is no column 'hour'; it has: user_id, item_id")) << message();
  EXPECT_FALSE(fs::exists(options.out));
}

TEST(PrepareFeatures, ABadRowOfATableStopsOrIsLeftOutAndCounted) {
  TemporaryFolder folder;
  PrepareOptions options{.inputs = {write_file(folder / "log.csv", "user_id,item_id\n1,1\n")},
                         .out = folder / "s"};
  options.item_tables = {write_file(folder / "items.csv", "item_id,size\n1,2\n2\n,5\n")};
  options.item_features = {"size"};
  const std::string message = message_of([&] { prepare(options); });
  EXPECT_TRUE(has(message, "items.csv")) << message;
  EXPECT_FALSE(fs::exists(options.out));
  options.bad_rows.skip = true;
  prepare(options);
  const Store store(options.out);
  EXPECT_EQ(store.manifest().feature_tables[0].unreadable, 2);
  EXPECT_EQ(words_of(store, FeatureOwner::kItem, "size"), (Words{"2"}));
}

TEST(PrepareFeatures, SeveralTablesAndTablesWithoutAHeader) {
  TemporaryFolder folder;
  PrepareOptions options{
      .inputs = {write_file(folder / "log.csv", "user_id,item_id\n1,1\n1,2\n1,3\n")},
      .out = folder / "s"};
  // Two parts of one table, and another with other columns.
  options.item_tables = {write_file(folder / "1.csv", "item_id,size\n1,a\n3,b\n"),
                         write_file(folder / "2.csv", "item_id,size\n3,c\n"),
                         write_file(folder / "3.csv", "item_id,shape\n2,round\n")};
  options.item_features = {"size", "shape"};
  prepare(options);
  const Store store(options.out);
  EXPECT_EQ(words_of(store, FeatureOwner::kItem, "size"), (Words{"a", "-", "c"}));
  EXPECT_EQ(words_of(store, FeatureOwner::kItem, "shape"), (Words{"-", "round", "-"}));
  EXPECT_EQ(store.manifest().feature_tables[0].repeated, 1);
  EXPECT_EQ(store.manifest().feature_tables[0].without_row, 0);

  options.out = folder / "t";
  options.item_tables = {
      write_file(folder / "movies.dat", "1::Heat (1995)::Crime|Action\n3::Big::Comedy\n")};
  options.item_features = {"3"};
  prepare(options);
  EXPECT_EQ(words_of(Store(options.out), FeatureOwner::kItem, "3"),
            (Words{"Crime+Action", "-", "Comedy"}));
}

TEST(PrepareFeatures, MoreValuesThanTheMemoryHoldsAreRefused) {
  TemporaryFolder folder;
  std::string log = "user_id,item_id,session\n";
  std::string items = "item_id,title\n";
  for (int i = 0; i < 4000; ++i) {
    log += fmt::format("1,{},a session of its own {}\n", i, i);
    items += fmt::format("{},a title of its own {}\n", i, i);
  }
  PrepareOptions options{.inputs = {write_file(folder / "log.csv", log)},
                         .out = folder / "s",
                         .memory_bytes = 8 << 10};
  options.item_tables = {write_file(folder / "items.csv", items)};
  options.item_features = {"title"};
  EXPECT_TRUE(has(message_of([&] { prepare(options); }), "item feature 'title': past"));
  options.item_features = {};
  options.columns.features = {"session"};
  EXPECT_TRUE(has(message_of([&] { prepare(options); }), "event feature 'session': past"));
  EXPECT_FALSE(fs::exists(options.out));
  options.memory_bytes = 64 << 20;
  options.item_features = {"title"};
  prepare(options);
  EXPECT_EQ(Store(options.out).feature(FeatureOwner::kEvent, "session").about.values, 4000);
}

TEST(PrepareFeatures, AutoKnowsMovieLensAndKuaiRand) {
  TemporaryFolder folder;
  fs::create_directories(folder / "ml");
  write_file(folder / "ml/ratings.dat", "7::30::5::2\n8::31::5::2\n");
  write_file(folder / "ml/movies.dat", "30::Heat (1995)::Crime|Action\n31::Big::Comedy\n");
  write_file(folder / "ml/users.dat", "7::F::1::10::48067\n8::M::56::16::70072\n");
  PrepareOptions options{
      .format = LogFormat::kMovieLens, .inputs = {folder / "ml"}, .out = folder / "s"};
  options.item_features = {"auto"};
  options.user_features = {"auto"};
  prepare(options);
  const Store movies(options.out);
  EXPECT_EQ(words_of(movies, FeatureOwner::kItem, "genres"), (Words{"Crime+Action", "Comedy"}));
  EXPECT_EQ(words_of(movies, FeatureOwner::kUser, "gender"), (Words{"F", "M"}));
  EXPECT_EQ(words_of(movies, FeatureOwner::kUser, "occupation"), (Words{"10", "16"}));
  EXPECT_EQ(movies.manifest().features.size(), 4u);

  fs::create_directories(folder / "kuai");
  write_file(folder / "kuai/log_standard_1k.csv",
             "user_id,video_id,time_ms,is_click,tab\n5,80,1649400000002,1,4\n");
  write_file(folder / "kuai/user_features_1k.csv", "user_id,user_active_degree\n5,high_active\n");
  write_file(folder / "kuai/video_features_basic_1k.csv",
             "video_id,author_id,video_duration,tag\n80,3,5966,\"12,65\"\n");
  options.format = LogFormat::kKuaiRand;
  options.inputs = {folder / "kuai"};
  options.out = folder / "k";
  options.columns.features = {"tab"};
  prepare(options);
  const Store videos(options.out);
  EXPECT_EQ(words_of(videos, FeatureOwner::kItem, "tag"), (Words{"12+65"}));
  EXPECT_EQ(words_of(videos, FeatureOwner::kItem, "video_duration"), (Words{"5966"}));
  EXPECT_EQ(words_of(videos, FeatureOwner::kUser, "user_active_degree"), (Words{"high_active"}));
  EXPECT_EQ(words_of(videos, FeatureOwner::kEvent, "tab"), (Words{"4"}));
  options.out = folder / "t";
  options.item_features = {"authr_id"};
  EXPECT_TRUE(has(message_of([&] { prepare(options); }), "has: video_id, author_id"));

  PrepareOptions other{.inputs = {write_file(folder / "log.csv", "user_id,item_id\n1,1\n")},
                       .out = folder / "u"};
  other.item_tables = {write_file(folder / "items.csv", "item_id,size\n1,2\n")};
  other.item_features = {"auto"};
  EXPECT_TRUE(has(message_of([&] { prepare(other); }), "name the columns to keep"));
}

TEST(PrepareFeatures, KindsAreFoundOrGiven) {
  const auto kind = [](const char* text, const char* type, const Words& sample) {
    const FeatureColumnKind found =
        settle_kind(parse_feature_requests({text}, FeatureOwner::kItem)[0], type, sample);
    return fmt::format("{}{}", name_of(found.kind),
                       found.kind == FeatureKind::kBag ? std::string(1, found.separator) : "");
  };
  EXPECT_EQ(kind("x", "", {"1", "2"}), "category");
  EXPECT_EQ(kind("x", "", {"1", "2|3"}), "bag|");
  EXPECT_EQ(kind("x:category", "", {"2|3"}), "category");
  EXPECT_EQ(kind("x:bag", "", {"a, b", "c"}), "bag,");
  EXPECT_EQ(kind("x:bag", "", {"a; b, c"}), "bag;");
  EXPECT_EQ(kind("x:bag:/", "", {"a|b"}), "bag/");
  EXPECT_EQ(kind("x:bag:comma", "", {"a|b"}), "bag,");
  EXPECT_EQ(kind("x:bag:space", "", {}), "bag ");
  EXPECT_EQ(kind("x", "token_seq", {"a b"}), "bag ");
  EXPECT_EQ(kind("x", "float", {"1"}), "number");
  EXPECT_EQ(kind("x", "token", {"1|2"}), "category");
}

TEST(PrepareFeatures, AVocabularyNumbersByFirstAppearanceAndSorts) {
  Vocabulary values;
  for (int i = 5000; i > 0; --i) EXPECT_EQ(values.code_of(std::to_string(i)), 5001 - i);
  EXPECT_EQ(values.code_of("4999"), 2);
  EXPECT_EQ(values.value(5000), "1");
  EXPECT_EQ(values.sorted().front(), 5000);
  values.code_of("007");
  EXPECT_EQ(values.value(values.sorted().front()), "007");
}

}  // namespace
}  // namespace turbogr::data
