#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/checksum.h"
#include "turbogr/data/stats.h"
#include "turbogr/data/store.h"
#include "turbogr/data/store_writer.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;
using test::has;
using test::message_of;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;

// Two users, three events, two items: a category, a bag and numbers.
void write_small(const fs::path& path, bool features = true) {
  StoreWriter writer(path, {.num_items = 2});
  const std::vector<std::int64_t> items = {0, 1};
  writer.add_user({.items = items});
  writer.add_user({.items = std::span(items).subspan(1)});
  if (features) {
    FeatureWriter& colour = writer.add_feature({.name = "colour", .owner = FeatureOwner::kItem});
    colour.add_value("red");
    colour.add_value("dark blue");
    colour.add_code(2);
    colour.add_code(0);
    FeatureWriter& tags = writer.add_feature(
        {.name = "tags", .owner = FeatureOwner::kUser, .kind = FeatureKind::kBag});
    tags.add_value("a");
    tags.add_value("b");
    tags.add_bag({});
    const std::vector<std::int32_t> bag = {2, 1, 2};
    tags.add_bag(bag);
    FeatureWriter& price = writer.add_feature(
        {.name = "price", .owner = FeatureOwner::kEvent, .kind = FeatureKind::kNumber});
    for (const float number : {1.5f, NAN, 4.5f}) price.add_number(number);
    price.count_unparsable(1);
    writer.add_feature_table({.owner = FeatureOwner::kItem, .rows = 7, .without_events = 5});
  }
  writer.finish();
}

// Changes the manifest and makes its checksum right again.
template <class Change>
void change_manifest(const fs::path& store, Change&& change) {
  auto json = nlohmann::json::parse(read_file(store / "manifest.json"));
  json.erase("manifest_xxh64");
  change(json);
  const std::string body = json.dump(2, ' ', true);
  json["manifest_xxh64"] = checksum_of(body.data(), body.size());
  write_file(store / "manifest.json", json.dump(2));
}

TEST(StoreFeatures, AreReadAsTheyWereWritten) {
  TemporaryFolder folder;
  write_small(folder / "s");
  const Store store(folder / "s");
  store.verify();
  const FeatureColumn colour = store.feature(FeatureOwner::kItem, "colour");
  EXPECT_EQ(colour.about.values, 2);
  EXPECT_EQ(colour.about.missing, 1);
  EXPECT_EQ(colour.codes[0], 2);
  EXPECT_EQ(colour.codes[1], 0);
  EXPECT_EQ(colour.value(2), "dark blue");
  EXPECT_EQ(colour.value(0), "");
  const FeatureColumn tags = store.feature(FeatureOwner::kUser, "tags");
  EXPECT_TRUE(tags.bag(0).empty());
  ASSERT_EQ(tags.bag(1).size(), 3u);
  EXPECT_EQ(tags.bag(1)[0], 2);
  EXPECT_EQ(tags.value(tags.bag(1)[1]), "a");
  const FeatureColumn price = store.feature(FeatureOwner::kEvent, "price");
  EXPECT_EQ(price.numbers[2], 4.5f);
  EXPECT_TRUE(std::isnan(price.numbers[1]));
  EXPECT_EQ(price.about.unparsable, 1);
  ASSERT_EQ(store.manifest().feature_tables.size(), 1u);
  EXPECT_EQ(store.manifest().feature_tables[0].without_events, 5);
  EXPECT_TRUE(store.has_feature(FeatureOwner::kItem, "colour"));
  EXPECT_FALSE(store.has_feature(FeatureOwner::kUser, "colour"));
}

TEST(StoreFeatures, SayWhatIsThereWhenAskedForSomethingElse) {
  TemporaryFolder folder;
  write_small(folder / "s");
  write_small(folder / "none", /*features=*/false);
  const Store store(folder / "s");
  EXPECT_TRUE(has(message_of([&] { store.feature(FeatureOwner::kItem, "size"); }),
                  "no item feature 'size'; it has: colour"));
  EXPECT_TRUE(has(message_of([&] { Store(folder / "none").feature(FeatureOwner::kItem, "size"); }),
                  "--item-features size"));
  EXPECT_TRUE(has(message_of([&] { store.feature(FeatureOwner::kItem, "colour").bag(0); }),
                  "is a category, not a bag"));
  EXPECT_TRUE(has(message_of([&] { store.feature(FeatureOwner::kItem, "colour").value(3); }),
                  "is not one of 2"));
}

TEST(StoreFeatures, OldProgramsRefuseThemAndReadStoresWithout) {
  TemporaryFolder folder;
  write_small(folder / "s");
  write_small(folder / "none", /*features=*/false);
  const auto version = [&](const char* store) {
    return nlohmann::json::parse(read_file(folder / store / "manifest.json"))["version"];
  };
  EXPECT_EQ(version("s"), 2);
  EXPECT_EQ(version("none"), 1);
  change_manifest(folder / "s", [](auto& json) { json["version"] = 3; });
  EXPECT_TRUE(has(message_of([&] { Store(folder / "s"); }), "reads up to 2: use a newer turbogr"));
}

TEST(StoreFeatures, AFileThatChangedOrIsGoneIsNoticed) {
  TemporaryFolder folder;
  for (const char* file : {"item_feature_colour.bin", "item_feature_text_colour.bin",
                           "item_feature_text_offsets_colour.bin", "user_feature_tags.bin",
                           "user_feature_offsets_tags.bin", "event_feature_price.bin"}) {
    const fs::path path = folder / "s" / file;
    write_small(folder / "s");
    std::string bytes = read_file(path);
    bytes[1] = static_cast<char>(bytes[1] ^ 1);
    write_file(path, bytes);
    EXPECT_TRUE(has(message_of([&] { Store(folder / "s").verify(); }), "damaged")) << file;
    write_file(path, bytes + "more");
    EXPECT_TRUE(has(message_of([&] { Store(folder / "s"); }), file)) << file;
    fs::remove(path);
    EXPECT_TRUE(has(message_of([&] { Store(folder / "s"); }), "missing")) << file;
    fs::remove_all(folder / "s");
  }
}

// Checksums that are right over contents that cannot be: a broken writer, or a hostile one.
TEST(StoreFeatures, VerifyChecksCodesAndCounts) {
  TemporaryFolder folder;
  const auto message = [&](const std::string& column, const std::string& bytes) {
    fs::remove_all(folder / "s");
    write_small(folder / "s");
    change_manifest(folder / "s", [&](auto& json) {
      for (auto& entry : json["columns"]) {
        if (entry["name"] != column) continue;
        write_file(folder / "s" / entry["file"].template get<std::string>(), bytes);
        entry["xxh64"] = checksum_of(bytes.data(), bytes.size());
        entry["bytes"] = bytes.size();
      }
    });
    return message_of([&] {
      const Store store(folder / "s");
      message_of([&] { stats_of(store); });
      store.verify();
    });
  };
  const auto int32s = [](std::vector<std::int32_t> values) {
    return std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  };
  const auto int64s = [](std::vector<std::int64_t> values) {
    return std::string(reinterpret_cast<const char*>(values.data()), 8 * values.size());
  };
  EXPECT_TRUE(has(message("item_feature:colour", int32s({3, 0})), "code 3 at place 0 of 2"));
  EXPECT_TRUE(has(message("item_feature:colour", int32s({-1, 0})), "code -1"));
  EXPECT_TRUE(has(message("item_feature:colour", int32s({1, 1})), "0 rows have no value"));
  EXPECT_TRUE(has(message("user_feature:tags", int32s({2, 0, 2})), "code 0 at place 1"));
  EXPECT_TRUE(has(message("user_feature_offsets:tags", int64s({0, 9, 3})), "damaged"));
  EXPECT_TRUE(has(message("user_feature_offsets:tags", int64s({0, 0, 9})), "end at 9, not at 3"));
  EXPECT_TRUE(has(message("item_feature_text_offsets:colour", int64s({0, 0, 12})),
                  "code 1 stands for nothing"));
}

TEST(StoreFeatures, TheWriterChecksRowsKindsAndCodes) {
  TemporaryFolder folder;
  StoreWriter writer(folder / "s", {.num_items = 1});
  FeatureWriter& colour = writer.add_feature({.name = "colour", .owner = FeatureOwner::kItem});
  EXPECT_TRUE(has(message_of([&] { colour.add_number(1); }), "is a category, not a number"));
  EXPECT_TRUE(has(message_of([&] { colour.add_value(""); }), "code 0 already"));
  EXPECT_TRUE(has(message_of([&] { writer.finish(); }), "got 0 rows of item feature 'colour'"));
  colour.add_code(4);
  EXPECT_TRUE(has(message_of([&] { colour.finish(1); }), "code 4 of 0 values"));
  EXPECT_TRUE(has(message_of([&] { colour.add_code(-1); }), "negative"));
  EXPECT_TRUE(
      has(message_of([&] { writer.add_feature({.name = "colour", .owner = FeatureOwner::kItem}); }),
          "two columns 'item_feature:colour'"));
}

TEST(StoreFeatures, NamesOfAnyAlphabetHaveFilesOfTheirOwn) {
  TemporaryFolder folder;
  StoreWriter writer(folder / "s", {.num_items = 1});
  for (const char* name : {"\u7c7b\u522b", "\u4f5c\u8005", "__ __"}) {
    FeatureWriter& feature = writer.add_feature({.name = name, .owner = FeatureOwner::kItem});
    feature.add_value(name);
    feature.add_code(1);
  }
  const std::vector<std::int64_t> items = {0};
  writer.add_user({.items = items});
  writer.finish();
  const Store store(folder / "s");
  store.verify();
  for (const char* name : {"\u7c7b\u522b", "\u4f5c\u8005", "__ __"}) {
    EXPECT_EQ(store.feature(FeatureOwner::kItem, name).value(1), name);
  }
}

TEST(StatsFeatures, ShowKindValuesMissingAndTheMostFrequent) {
  TemporaryFolder folder;
  write_small(folder / "s");
  const StoreStats stats = stats_of(Store(folder / "s"));
  const auto json = nlohmann::json::parse(to_json(stats));
  ASSERT_EQ(json["features"].size(), 3u);
  EXPECT_EQ(json["features"][0]["name"], "colour");
  EXPECT_EQ(json["features"][0]["kind"], "category");
  EXPECT_EQ(json["features"][0]["missing"], 0.5);
  EXPECT_EQ(json["features"][1]["of"], "user");
  EXPECT_EQ(json["features"][1]["values"], 2);
  EXPECT_EQ(json["features"][1]["most_frequent"][0]["value"], "b");
  EXPECT_EQ(json["features"][1]["most_frequent"][0]["count"], 2);
  EXPECT_EQ(json["features"][2]["mean"], 3.0);
  EXPECT_EQ(json["features"][2]["unparsable"], 1);
  EXPECT_EQ(json["feature_tables"][0]["without_events"], 5);
  const std::string text = to_text(stats);
  EXPECT_TRUE(has(text, "b 2, a 1")) << text;
  EXPECT_TRUE(has(text, "1.5 to 4.5, mean 3; 1 fields are no numbers")) << text;
  EXPECT_TRUE(has(text, "item tables: 7 rows, 5 of items without events")) << text;
  write_small(folder / "none", /*features=*/false);
  EXPECT_FALSE(has(to_text(stats_of(Store(folder / "none"))), "feature"));
}

}  // namespace
}  // namespace turbogr::data
