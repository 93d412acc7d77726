// What may be given to prepare: folders, RecBole's files, and what is no log at all.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/compress.h"
#include "tests/support/histories.h"
#include "tests/support/messages.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/file_kind.h"
#include "turbogr/data/item_titles.h"
#include "turbogr/data/log_layout.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;
using test::has;
using test::histories_of;
using test::message_of;
using test::TemporaryFolder;
using test::write_file;

class Folder : public ::testing::Test {
 protected:
  Folder() { fs::create_directory(folder_ / "in"); }

  fs::path add(const std::string& name, const std::string& text) {
    return write_file(folder_ / ("in/" + name), text);
  }
  PrepareOptions options() const {
    return {.inputs = {folder_ / "in"}, .out = folder_ / "s", .overwrite = true};
  }
  std::string message() const {
    return message_of([&] { prepare(options()); });
  }

  TemporaryFolder folder_;
};

TEST_F(Folder, StandsForTheLogsInItInOrderOfTheirNames) {
  const std::string header = "user_id,item_id\n";
  add("part-1.csv", header + "1,11\n");
  add("part-0.csv.gz", test::gzip(header + "1,10\n"));
  add("part-2.tsv", "user_id\titem_id\n1\t12\n");
  add("README.txt", "about these files");
  add("picture.png", "x");
  add(".hidden.csv", "no log");
  fs::create_directory(folder_ / "in/more");
  const PrepareReport report = prepare(options());
  EXPECT_EQ(histories_of(Store(folder_ / "s")), (std::vector<std::string>{"1: 10 11 12"}));
  ASSERT_GE(report.remarks.size(), 1u);
  EXPECT_TRUE(has(report.remarks[0], "3 logs read; left alone: README.txt, more, picture.png"))
      << report.remarks[0];
}

TEST_F(Folder, LinksThatLeadNowhereAreMissedWhereTheyAreNamedLikeLogs) {
  add("log.csv", "user_id,item_id\n1,10\n");
  fs::create_symlink("loop", folder_ / "in/loop");
  PrepareOptions inside = options();
  inside.out = folder_ / "in/store";
  const PrepareReport report = prepare(inside);
  EXPECT_EQ(report.events, 1);
  ASSERT_GE(report.remarks.size(), 1u);
  EXPECT_TRUE(report.remarks[0].ends_with("1 log read; left alone: loop")) << report.remarks[0];
  fs::create_symlink("nowhere", folder_ / "in/more.csv");
  EXPECT_TRUE(has(message(), "cannot open '" + (folder_ / "in/more.csv").string())) << message();
}

TEST_F(Folder, WithoutALogIsTold) {
  EXPECT_TRUE(has(message(), "holds no log")) << message();
  EXPECT_TRUE(has(message(), "it has: nothing")) << message();
  add("log.parquet", "PAR1");
  EXPECT_TRUE(has(message(), "no file in it ends in .csv, .tsv")) << message();
  EXPECT_TRUE(has(message(), "it has: log.parquet")) << message();
  add("more.csv", "item,title\n1,a\n");
  EXPECT_TRUE(has(message(), "more.csv': no user column")) << message();
}

TEST_F(Folder, OfAKnownDataSetNamesItsFormat) {
  add("ratings.csv", "userId,movieId,rating,timestamp\n1,2,3,4\n");
  EXPECT_EQ(message(), "");
  add("movies.csv", "movieId,title\n2,Up\n");
  EXPECT_TRUE(has(message(), "looks like MovieLens': give --format movielens")) << message();
  fs::remove(folder_ / "in/movies.csv");
  add("log_standard_4_08_to_4_21_pure.csv", "user_id,video_id,time_ms\n1,2,3\n");
  EXPECT_TRUE(has(message(), "looks like KuaiRand's: give --format kuairand")) << message();
}

TEST_F(Folder, OfRecBoleHoldsItsTablesToo) {
  // RecBole knows no quotes: the title is text as it stands.
  add("ml.inter",
      "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
      "7\t30\t5\t2.0\n7\t40\t3\t1.0\n");
  add("ml.item", "item_id:token\tmovie_title:token_seq\n30\t\"Heat\n40\tUp\n");
  add("ml.user", "user_id:token\tage:token\n7\t24\n");
  add("ml.kg", "x");
  const PrepareReport report = prepare(options());
  const Store store(folder_ / "s");
  EXPECT_EQ(histories_of(store), (std::vector<std::string>{"7: 40@1 30@2"}));
  EXPECT_EQ(store.numbers("rating")[0], 3.0f);
  const ItemTitles titles = ItemTitles::of(store);
  EXPECT_EQ(titles.text(0), "\"Heat");
  EXPECT_EQ(titles.text(1), "Up");
  EXPECT_EQ(test::read_file(store.side_table("user_features")),
            test::read_file(folder_ / "in/ml.user"));
  ASSERT_EQ(report.remarks.size(), 1u);
  EXPECT_TRUE(has(report.remarks[0], "1 log read; left alone: ml.kg")) << report.remarks[0];
}

TEST_F(Folder, OfKuaiRandIsSharedOutByItsLogsAlone) {
  const std::string header = "user_id,video_id,date,hourmin,time_ms,is_click\n";
  add("log_random_4_22_to_5_08_pure.csv", header + "1,10,20220422,100,1650000000000,1\n");
  add("log_standard_4_22_to_5_08_pure.csv", header + "1,11,20220423,100,1650100000000,0\n");
  add("user_features_pure.csv", "user_id,user_active_degree\n1,high\n");
  add("video_features_basic_pure.csv", "video_id,author_id\n10,5\n11,6\n");
  std::vector<std::string> histories;
  for (int shard = 0; shard < 2; ++shard) {
    PrepareOptions part = options();
    part.format = LogFormat::kKuaiRand;
    part.shards = 2;
    part.shard = shard;
    const PrepareReport report = prepare(part);
    histories.push_back(histories_of(Store(part.out)).at(0));
    EXPECT_TRUE(Store(part.out).manifest().side_tables.empty());
    std::string remarks;
    for (const std::string& remark : report.remarks) remarks += remark + "\n";
    EXPECT_TRUE(has(remarks, "give these to `turbogr data merge`")) << remarks;
    EXPECT_TRUE(has(remarks, "user_features_pure.csv, ")) << remarks;
  }
  EXPECT_EQ(histories, (std::vector<std::string>{"1: 10@1650000000000", "1: 11@1650100000000"}));
  PrepareOptions part = options();
  part.format = LogFormat::kKuaiRand;
  part.shards = 3;
  EXPECT_TRUE(has(message_of([&] { prepare(part); }), "3 shards of 2 logs"));
}

TEST(RecBole, TypesLeaveTheNamesOfAHeader) {
  std::vector<std::string> header = {"user_id:token", "tags:token_seq", "x:float", "y:float_seq"};
  EXPECT_TRUE(strip_recbole_types(header));
  EXPECT_EQ(header, (std::vector<std::string>{"user_id", "tags", "x", "y"}));
  for (const std::vector<std::string>& other : {std::vector<std::string>{"user_id:token", "item"},
                                                {"user:id", "item:float"},
                                                {"a:tokens"}}) {
    header = other;
    EXPECT_FALSE(strip_recbole_types(header));
    EXPECT_EQ(header, other);
  }
  const LogLayout layout =
      find_layout(LogFormat::kCsv, {}, "user_id:token\tlabel:float\titem_id:token\n", "x.inter");
  EXPECT_TRUE(layout.header);
  EXPECT_EQ(layout.user, 0);
  EXPECT_EQ(layout.item, 2);
  EXPECT_FALSE(layout.dialect.quotes);
}

TEST(FileKind, IsToldByTheFirstBytes) {
  using namespace std::string_literals;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"PAR1\x15\x04", "Parquet"},
      {"ARROW1\0\0"s, "Arrow"},
      {"{\"user_id\": 1, \"item_id\": 2}\n", "JSON"},
      {"[\n  {\"user_id\": 1}\n]", "JSON"},
      {"PK\x03\x04"
       "abc",
       "zip"},
      {"SQLite format 3\0"s, "SQLite"},
      {"\x80\x04\x95", "pickle"},
      {"\xfd"
       "7zXZ\0"s,
       "xz"},
      {"<!DOCTYPE html><html>", "web page"},
      {"ab,c\0d\n1,2\n"s, "binary"},
      {"a,b\n" + std::string(500, '\0') + "\n", "binary"},
      {std::string(257, 'a') + "ustar\0"s, "tar"}};
  for (const auto& [bytes, kind] : cases) {
    EXPECT_TRUE(has(std::string(kind_of_other_file(bytes)), kind)) << kind;
    const std::string message =
        message_of([&bytes = bytes] { check_delimited_text(bytes, "log"); });
    EXPECT_TRUE(has(message, "'log' is a") || has(message, "'log' is JSON")) << message;
  }
  for (const std::string& text : {""s, "user_id,item_id\n1,2\n"s, "[user],[item]\n"s,
                                  "{user},{item}\n"s, "a,b\n1,\0x\n"s + std::string(500, 'x'),
                                  "user\x01item\x01time\n1\x01"
                                  "2\x01"
                                  "3\n"s}) {
    EXPECT_EQ(kind_of_other_file(text), "") << text;
  }
}

TEST(FileKind, IsNamedByPrepareForLogsAndTables) {
  TemporaryFolder folder;
  const auto parquet = write_file(folder / "log.parquet", "PAR1,\n");
  const auto json = write_file(folder / "items.json", "{\"id\": 1, \"title\": \"Up\"}\n");
  const auto log = write_file(folder / "log.csv", "user,item\n1,2\n");
  PrepareOptions options{.inputs = {parquet}, .out = folder / "s"};
  EXPECT_TRUE(has(message_of([&] { prepare(options); }),
                  "log.parquet' is a Parquet file; turbogr reads it with --format parquet"));
  options.inputs = {log};
  options.item_tables = {json};
  EXPECT_TRUE(has(message_of([&] { prepare(options); }), "items.json' is JSON"));
  options.item_tables.clear();
  prepare(options);
  EXPECT_TRUE(has(message_of([&] { ItemTitles::read(json, Store(folder / "s")); }), "is JSON"));
}

TEST(UsualNames, AreInTheDocument) {
  const std::string document =
      test::read_file(fs::path(test::source_dir()) / "docs/data_format.md");
  for (const UsualNames& usual : usual_names()) {
    EXPECT_FALSE(usual.names.empty());
    for (const std::string_view name : usual.names) {
      EXPECT_TRUE(has(document, "`" + std::string(name) + "`")) << usual.what << " " << name;
    }
  }
}

}  // namespace
}  // namespace turbogr::data
