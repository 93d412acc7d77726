// Tables about items and users in memory, against the same tables as text.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/arrow.h"
#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;
using test::ArrowSource;
using test::ArrowValues;
using test::booleans;
using test::dictionary;
using test::list;
using test::message_of;
using test::numbers;
using test::read_file;
using test::strings;
using test::TemporaryFolder;
using test::write_file;
using Ints = std::vector<std::int64_t>;
using Strings = std::vector<std::string>;

void expect_same_store(const fs::path& a, const fs::path& b) {
  Store(b).verify();
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(a)) {
    EXPECT_EQ(read_file(entry.path()), read_file(b / entry.path().filename())) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, static_cast<std::size_t>(
                       std::distance(fs::directory_iterator(b), fs::directory_iterator())));
}

PrepareOptions three_items(const TemporaryFolder& folder) {
  return {.inputs = {write_file(folder / "log.csv", "user_id,item_id\n7,1\n7,2\n8,3\n")},
          .out = folder / "store"};
}

std::string words(const Strings& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

TEST(ArrowTables, GiveTheBytesOfTheSameTablesAsText) {
  const TemporaryFolder folder;
  PrepareOptions text = three_items(folder);
  text.item_tables = {write_file(folder / "items.csv",
                                 "item_id,title,shelf,size,price,weight,new,tags,note\n"
                                 "1,\"One, \"\"first\"\"\",left,-4,0.5,1.25,true,a|b,\n"
                                 "2,,right,,2,,,,\n"
                                 "9,Nine,left,200,1e+300,-3,false,c,\n"
                                 "3,Three,,7,,0.1,true,b|b|d,\n")};
  text.item_features = {"shelf", "size",         "price:number", "weight:number",
                        "new",   "tags:bag:bar", "note"};
  text.user_tables = {write_file(folder / "users.csv", "user_id,age\n7,25\n8,\n")};
  text.user_features = {"age:number"};
  text.out = folder / "text";
  prepare(text);

  // Two batches, the second one a slice.
  const auto batch = [](std::vector<ArrowValues> columns, std::int64_t offset) {
    for (ArrowValues& column : columns) column.offset = offset, column.length -= offset;
    return columns;
  };
  ArrowSource items(
      {batch(
           {numbers("item_id", "I", std::vector<std::uint32_t>{1, 2}),
            strings("title", "U", {"One, \"first\"", ""}, {1, 0}),
            dictionary(numbers("shelf", "c", std::vector<std::int8_t>{1, 0}),
                       strings("", "u", {"right", "left"})),
            numbers("size", "s", std::vector<std::int16_t>{-4, 0}, {1, 0}),
            numbers("price", "g", std::vector<double>{0.5, 2}),
            numbers("weight", "f", std::vector<float>{1.25f, std::nanf("")}),
            booleans("new", {1, 0}, {1, 0}), list("tags", {0, 2, 2}, strings("", "u", {"a", "b"})),
            ArrowValues{.name = "note", .format = "n", .length = 2, .buffers = {}}},
           0),
       batch({numbers("item_id", "I", std::vector<std::uint32_t>{5, 9, 3}),
              strings("title", "U", {"no", "Nine", "Three"}),
              dictionary(numbers("shelf", "c", std::vector<std::int8_t>{1, 0, 0}, {1, 1, 0}),
                         strings("", "u", {"left", "right"})),
              numbers("size", "s", std::vector<std::int16_t>{5, 200, 7}),
              numbers("price", "g", std::vector<double>{5, 1e300, 0}, {1, 1, 0}),
              numbers("weight", "f", std::vector<float>{5, -3, 0.1f}), booleans("new", {1, 0, 1}),
              list("tags", {0, 1, 3, 6},
                   strings("", "u", {"x", "c", "", "b", "b", "d"}, {1, 1, 0, 1, 1, 1})),
              ArrowValues{.name = "note", .format = "n", .length = 3, .buffers = {}}},
             1)});
  // Of the dictionary's two values the second batch uses only the first, "left".
  ArrowSource users(
      {{numbers("user_id", "l", Ints{7, 8}), numbers("age", "l", Ints{25, 0}, {1, 0})}});
  PrepareOptions arrow = text;
  arrow.item_tables = {{"items", items.stream()}};
  arrow.user_tables = {{"users", users.stream()}};
  arrow.out = folder / "arrow";
  const PrepareReport report = prepare(arrow);
  expect_same_store(text.out, arrow.out);
  EXPECT_EQ(items.lent(), 0);
  EXPECT_EQ(users.lent(), 0);
  EXPECT_NE(words(report.remarks).find("1 of 4 rows speak of items without events"),
            std::string::npos)
      << words(report.remarks);
}

TEST(ArrowTables, AListIsABagEvenOfOneValue) {
  const TemporaryFolder folder;
  PrepareOptions options = three_items(folder);
  ArrowSource items({{numbers("item_id", "l", Ints{1, 2}),
                      list("tags", {0, 1, 2}, numbers("", "i", std::vector<std::int32_t>{4, 5}))}});
  options.item_tables = {{"items", items.stream()}};
  options.item_features = {"tags"};
  EXPECT_EQ(words(prepare(options).remarks).find("separator"), std::string::npos);
  const Store store(options.out);
  const FeatureColumn tags = store.feature(FeatureOwner::kItem, "tags");
  EXPECT_EQ(tags.about.kind, FeatureKind::kBag);
  ASSERT_EQ(tags.bag(1).size(), 1u);
  EXPECT_EQ(tags.value(tags.bag(1)[0]), "5");
}

TEST(ArrowTables, ValuesWithTheSeparatorWantAnother) {
  const TemporaryFolder folder;
  PrepareOptions options = three_items(folder);
  const auto prepare_with = [&](const char* feature) {
    ArrowSource items({{numbers("item_id", "l", Ints{1, 2}),
                        list("tags", {0, 2, 2}, strings("", "u", {"a|b", "c"}))}});
    options.item_tables = {{"items", items.stream()}};
    options.item_features = {feature};
    options.overwrite = true;
    prepare(options);
  };
  const std::string refused = message_of([&] { prepare_with("tags"); });
  EXPECT_NE(refused.find("the value 'a|b' of a list has the separator"), std::string::npos)
      << refused;
  prepare_with("tags:bag:semicolon");
  const Store store(options.out);
  const FeatureColumn tags = store.feature(FeatureOwner::kItem, "tags");
  ASSERT_EQ(tags.bag(0).size(), 2u);
  EXPECT_EQ(tags.value(tags.bag(0)[0]), "a|b");
}

TEST(ArrowTables, TypesNobodyReadsAreLeftOutUnlessTheyAreAskedFor) {
  const TemporaryFolder folder;
  PrepareOptions options = three_items(folder);
  const auto prepare_with = [&](const Strings& features) {
    ArrowSource items({{numbers("cost", "d:9,2", Ints{1, 2}), numbers("item_id", "l", Ints{1, 2}),
                        numbers("size", "l", Ints{5, 6})}});
    options.item_tables = {{"the frame", items.stream()}};
    options.item_features = features;
    options.overwrite = true;
    return words(prepare(options).remarks);
  };
  const std::string remarks = prepare_with({"size"});
  EXPECT_NE(remarks.find("'the frame': left out, being of types that turbogr does not read: cost"),
            std::string::npos)
      << remarks;
  const Store store(options.out);
  EXPECT_EQ(read_file(store.folder() / "item_features.csv"), "item_id,size\n1,5\n2,6\n");
  const std::string refused = message_of([&] { prepare_with({"cost"}); });
  EXPECT_NE(refused.find("'the frame': column 'cost' has the Arrow type 'd:9,2'"),
            std::string::npos)
      << refused;
  const std::string missing = message_of([&] { prepare_with({"colour"}); });
  EXPECT_NE(missing.find("no column 'colour'; 'the frame' has: item_id, size"), std::string::npos)
      << missing;
}

TEST(ArrowTables, TitlesAreKnownOfThemAndTheLaterTableCounts) {
  const TemporaryFolder folder;
  PrepareOptions options = three_items(folder);
  ArrowSource items({{numbers("item_id", "l", Ints{1}), strings("title", "u", {"One"})}});
  options.item_tables = {{"items", items.stream()}};
  const std::string remarks = words(prepare(options).remarks);
  EXPECT_NE(remarks.find("item table 'items': 1 of 3 items have a title in it"), std::string::npos)
      << remarks;
  ArrowSource first({{numbers("item_id", "l", Ints{1, 2}), strings("kind", "u", {"a", "b"})}});
  options.item_tables = {{"first", first.stream()},
                         write_file(folder / "second.csv", "item_id,kind\n2,c\n")};
  options.item_features = {"kind"};
  options.overwrite = true;
  prepare(options);
  const Store store(options.out);
  const FeatureColumn kind = store.feature(FeatureOwner::kItem, "kind");
  EXPECT_EQ(kind.value(kind.codes[0]), "a");
  EXPECT_EQ(kind.value(kind.codes[1]), "c");
}

// KuaiRand's tags are a text with commas in its own files.
TEST(ArrowTables, AutoKnowsPublishedTablesWhoseBagsAreLists) {
  const TemporaryFolder folder;
  PrepareOptions options = three_items(folder);
  ArrowSource source({{numbers("video_id", "l", Ints{1, 2}),
                       list("tag", {0, 2, 3}, numbers("", "l", Ints{12, 65, 3}))}});
  options.item_tables = {{"video_features_basic_1k.parquet", source.stream()}};
  options.item_features = {"auto"};
  prepare(options);
  const Store store(options.out);
  const FeatureColumn tags = store.feature(FeatureOwner::kItem, "tag");
  ASSERT_EQ(tags.bag(0).size(), 2u);
  EXPECT_EQ(tags.value(tags.bag(0)[1]), "65");
}

TEST(ArrowTables, ATableThatIsNotKeptLeavesItsFeaturesAlone) {
  const TemporaryFolder folder;
  PrepareOptions options = three_items(folder);
  ArrowSource source({{numbers("item_id", "l", Ints{1, 2}), strings("kind", "u", {"a", "b"})}});
  options.item_tables = {{"frame", source.stream()},
                         write_file(folder / "more.csv", "item_id,kind\n3,c\n")};
  for (TableInput& table : options.item_tables) table.kept = false;
  options.item_features = {"kind"};
  prepare(options);
  const Store store(options.out);
  store.verify();
  EXPECT_TRUE(store.manifest().side_tables.empty());
  EXPECT_FALSE(fs::exists(options.out / "item_features.csv"));
  const FeatureColumn kind = store.feature(FeatureOwner::kItem, "kind");
  EXPECT_EQ(kind.value(kind.codes[2]), "c");
}

TEST(ArrowTables, ParquetWantsItsLibrary) {
  const TemporaryFolder folder;
  PrepareOptions options = three_items(folder);
  options.item_tables = {write_file(folder / "items.parquet", "PAR1 and more")};
  const std::string refused = message_of([&] { prepare(options); });
  EXPECT_TRUE(refused.find("Parquet cannot be") != std::string::npos) << refused;
  fs::create_directory(folder / "tables");
  options.item_tables = {folder / "tables"};
  const std::string empty = message_of([&] { prepare(options); });
  EXPECT_NE(empty.find("is a folder without Parquet files"), std::string::npos) << empty;
}

}  // namespace
}  // namespace turbogr::data
