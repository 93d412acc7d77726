// What prepare says to input that is not as it should be, and that it leaves nothing behind.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/compress.h"
#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/bad_rows.h"
#include "turbogr/data/field.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;
using test::write_file;

class BadInput : public ::testing::Test {
 protected:
  PrepareOptions options_for(const std::string& text, const std::string& name = "log.csv") {
    return {.inputs = {write_file(folder_ / name, text)}, .out = folder_ / "s", .overwrite = true};
  }

  // Expects an error with every part in it, and no trace of a store.
  void expect_error(const PrepareOptions& options, std::initializer_list<const char*> parts) {
    const std::string text = test::message_of([&] { prepare(options); });
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      EXPECT_FALSE(entry.is_directory()) << entry.path();
    }
  }

  test::TemporaryFolder folder_;
};

constexpr const char* kHeader = "user_id,item_id,timestamp,rating\n";

TEST_F(BadInput, StopNamesFileLineColumnAndText) {
  std::string good = kHeader;
  for (int i = 0; i < 10; ++i) good += "1,2,3,4\n";
  expect_error(options_for(good + "1,x2,3,4\n"),
               {"log.csv', line 12, column item_id", "not a number: 'x2'", "--ids string"});
  expect_error(options_for(std::string(kHeader) + "1,2,3,4\n\n1,2,yesterday,4\n"),
               {"line 4, column timestamp",
                "not a time: 'yesterday'; times are whole numbers, or dates such as 2022-04-30"});
  expect_error(options_for(std::string(kHeader) + "1,2,3,good\n"),
               {"line 2, column rating", "not a number: 'good'", "--on-error skip"});
  expect_error(options_for("user,item,is_click\n1,2,maybe\n"), {"column is_click", "'maybe'"});
}

TEST_F(BadInput, ATruncatedFileIsTold) {
  expect_error(options_for(std::string(kHeader) + "1,2,3,4\n1,2"),
               {"line 3", "wrong number of columns", "2 columns, not 4", "seems cut short"});
  std::string rows;
  for (int i = 0; i < 20000; ++i) rows += std::to_string(i) + ",2,3,4\n";
  const std::string gz = test::gzip(kHeader + rows);
  expect_error(options_for(gz.substr(0, gz.size() - 100), "a.csv.gz"), {"truncated"});
  const std::string zst = test::zstd(kHeader + rows);
  expect_error(options_for(zst.substr(0, zst.size() - 10), "a.csv.zst"), {"truncated"});
}

TEST_F(BadInput, AMissingColumnIsTold) {
  expect_error(options_for("user_id,rating\n1,2\n"), {"no item column", "it has: user_id, rating"});
  expect_error(options_for("user_id,item_id,time\n1,2,3\n1,2\n"), {"line 3", "2 columns, not 3"});
  PrepareOptions options = options_for("user_id,item_id,time\n1,2,3\n");
  options.inputs.push_back(write_file(folder_ / "second.csv", "user_id,item_id\n1,2\n"));
  expect_error(options, {"second.csv", "columns of the first file"});
}

TEST_F(BadInput, AnEmptyInputIsTold) {
  expect_error(options_for(""), {"log.csv' is empty"});
  expect_error(options_for(kHeader), {"no usable row", "0 rows read"});
  expect_error({.out = folder_ / "s"}, {"no input file"});
  PrepareOptions options = options_for(kHeader);
  options.inputs = {folder_ / "absent.csv"};
  expect_error(options, {"absent.csv", "check the path"});
  options = options_for("user_id,tag\n1,2\n");
  options.format = LogFormat::kKuaiRand;
  expect_error(options, {"feature tables only"});
  fs::create_directory(folder_ / "empty");
  options.inputs = {folder_ / "empty"};
  EXPECT_NE(test::message_of([&] { prepare(options); }).find("none of KuaiRand's files"),
            std::string::npos);
}

TEST_F(BadInput, AWrongDelimiterIsTold) {
  PrepareOptions options = options_for(std::string(kHeader) + "1,2,3,4\n");
  options.columns.delimiter = "tab";
  expect_error(options, {"the first line is one column", "is --delimiter wrong?"});
  options = options_for("user_id;item_id;timestamp\n1,2,3\n");
  expect_error(options, {"line 2", "1 columns, not 3"});
}

TEST_F(BadInput, QuotesCrlfAndAByteOrderMarkAreNoTrouble) {
  prepare(
      options_for("\xef\xbb\xbf\"user_id\",item_id,title,time\r\n"
                  "1,\"2\",\"a \"\"b\"\", c\r\nd\",3\r\n\"1\",5,x,1\r\n"));
  const Store store(folder_ / "s");
  EXPECT_EQ(store.num_events(), 2);
  EXPECT_EQ(store.item_ids().kind(), IdKind::kInt64);
  EXPECT_EQ(store.items32()[0], 1);
  EXPECT_EQ(store.times()[1], 3);
}

TEST_F(BadInput, AnUnclosedQuoteIsTold) {
  expect_error(options_for("user_id,item_id,title\n1,2,a\n1,3,\"b\n1,4,c\n"),
               {"line 3", "quote never closed", "swallows 2 lines, up to line 4"});
}

TEST_F(BadInput, RowsSwallowedByAnUnclosedQuoteAllCount) {
  std::string log = "user_id\titem_id\ttitle\n";
  for (int row = 0; row < 200; ++row) {
    log +=
        std::to_string(row % 7) + "\t" + std::to_string(row) + (row == 10 ? "\t\"Up\n" : "\tUp\n");
  }
  PrepareOptions options = options_for(log);
  options.bad_rows = {.skip = true, .max_bad = 189};
  expect_error(options,
               {"more than 189 bad rows", "line 12", "swallows 190 lines, up to line 201"});
  options.bad_rows.max_bad = 190;
  const PrepareReport report = prepare(options);
  EXPECT_EQ(report.rows, 200);
  EXPECT_EQ(report.bad_rows, 190);
  EXPECT_EQ(report.events, 10);
}

TEST_F(BadInput, MoreColumnsThanAnyLogHasAreTold) {
  const std::string commas(70'000, ',');
  expect_error(options_for("user_id,item_id" + commas + "\n1,2\n"),
               {"the first line has more than 65536 columns", "is --delimiter wrong"});
  expect_error(options_for("user_id,item_id\n1,2\n1,3" + commas + "\n"),
               {"line 3", "more than 65536 columns, not 2"});
}

TEST_F(BadInput, ManyMoreSignalsThanAStoreKeepsAreToldBeforeEachIsLookedAt) {
  std::string header = "user_id,item_id";
  for (int i = 0; i < 60'000; ++i) header += ",is_" + std::to_string(i);
  // One name twice: it would be found, late, by comparing each with all before it.
  expect_error(options_for(header + ",is_59999\n"),
               {"60001 signal columns; a store keeps 32 at most", "--signal-columns"});
}

TEST_F(BadInput, IdsTooLongForAnyMemoryAreTold) {
  const std::string longest(kLongestId, 'x');
  PrepareOptions options = options_for("user,item\na,b\na," + longest + "\na," + longest + "y\n");
  expect_error(options,
               {"line 4, column item", "id too long", "it has 4097 bytes; 4096 are the most"});
  options.bad_rows.skip = true;
  EXPECT_EQ(prepare(options).events, 2);
}

TEST(BadRows, AreDescribedOnlyWhenShown) {
  BadRows bad({.skip = true, .max_bad = 1000});
  int described = 0;
  for (int i = 0; i < 1000; ++i) {
    bad.add(BadRow::kColumns, {.file = "log.csv", .line = i + 1, .text = "x"}, [&] {
      ++described;
      return std::string("2 columns");
    });
  }
  EXPECT_EQ(bad.count(), 1000);
  EXPECT_EQ(described, 3);
}

TEST_F(BadInput, AQuoteClosedByThatOfALaterTitleIsTold) {
  // Read by the letter, the first record has three columns and 3 and 4 would be lost unseen.
  expect_error(options_for("user_id,item_id,title\n1,2,\"Up\n1,3,b\n1,4,\"Heat\n1,5,c\n"),
               {"line 2", "quote never closed", "swallows 3 lines, up to line 4"});
}

TEST_F(BadInput, NumbersTooLargeAreTold) {
  const std::string good = std::string(kHeader) + "1,2,3,4\n";
  std::string many = good;
  for (int i = 0; i < 2000; ++i) many += "1,2,3,4\n";
  expect_error(options_for(many + "99999999999999999999,2,3,4\n"),
               {"line 2003, column user_id", "number too large"});
  expect_error(options_for(good + "1,2,1650882384975000,4\n"),
               {"column timestamp", "number too large", "seconds or milliseconds"});
  expect_error(options_for(good + "1,2,99999999999999999999,4\n"), {"number too large"});
  expect_error(options_for(good + "1,2,3,1e99\n"), {"column rating", "number too large"});
}

TEST_F(BadInput, EmptyIdsAreTold) {
  expect_error(options_for(std::string(kHeader) + "1,,3,4\n"), {"column item_id", "empty id"});
  expect_error(options_for("user,item\na,b\n,b\n"), {"column user", "empty id"});
}

TEST_F(BadInput, SkipCountsByKindAndShowsSomeOfEach) {
  PrepareOptions options =
      options_for(std::string(kHeader) + "1,2,3,4\nx,2,3,4\n1,2\n1,y,3,4\n1,2,noon,4\n1,3,4,5\n");
  options.ids = "integer";
  options.bad_rows.skip = true;
  const PrepareReport report = prepare(options);
  EXPECT_EQ(report.rows, 6);
  EXPECT_EQ(report.bad_rows, 4);
  EXPECT_EQ(report.events, 2);
  EXPECT_EQ(report.items, 2);
  std::string all;
  for (const std::string& remark : report.remarks) all += remark + "\n";
  for (const char* part : {"2 rows left out: not a number", "line 3, column user_id",
                           "1 rows left out: wrong number of columns", "'noon'"}) {
    EXPECT_NE(all.find(part), std::string::npos) << all;
  }
}

TEST_F(BadInput, AFirstBadTimeDoesNotSpoilTheOthers) {
  PrepareOptions options =
      options_for("user,item,time\n1,2,soon\n1,2,2022-04-08\n1,3,2022-04-09\n");
  options.bad_rows.skip = true;
  const PrepareReport report = prepare(options);
  EXPECT_EQ(report.bad_rows, 1);
  EXPECT_EQ(report.events, 2);
}

TEST_F(BadInput, SkipFailsPastTheMostAllowed) {
  PrepareOptions options = options_for("user,item\n1,2\n1\n2\n3\n");
  options.bad_rows = {.skip = true, .max_bad = 3};
  EXPECT_EQ(prepare(options).bad_rows, 3);
  fs::remove_all(folder_ / "s");
  options.bad_rows.max_bad = 2;
  expect_error(options, {"more than 2 bad rows", "line 3", "wrong number of columns"});
}

TEST_F(BadInput, AnInputGivenTwiceIsTold) {
  PrepareOptions options = options_for("user,item\n1,2\n");
  fs::create_symlink(options.inputs[0], folder_ / "link.csv");
  const std::vector<fs::path> once = options.inputs;
  for (const fs::path& again :
       {options.inputs[0], folder_ / "." / "log.csv", folder_ / "link.csv"}) {
    options.inputs = {once[0], again};
    expect_error(options, {"are the same input", "name it once"});
  }
  options.inputs = {"-", "-"};
  expect_error(options, {"are the same input"});
}

TEST_F(BadInput, ColumnsOfTheSameNameAreTold) {
  expect_error(options_for("user,item,user\n1,2,3\n"),
               {"two columns are named 'user'", "--user-column"});
  expect_error(options_for("user,item,rating,rating\n1,2,3,4\n"),
               {"column 'rating' would be kept twice"});
  PrepareOptions options = options_for("user,item,user\n1,2,3\n");
  options.columns.user = "3";
  EXPECT_EQ(prepare(options).users, 1);
}

TEST_F(BadInput, TimesOfTwoSpellingsAndNoNumbersAreTold) {
  expect_error(options_for("user,item,time\n1,2,3\n1,2,4\n1,2,2020-01-01\n"),
               {"line 4", "not a time: '2020-01-01'; the other times are numbers"});
  expect_error(options_for("user,item,time\n1,2,2020-01-01\n1,3,7\n1,2,2020-01-02\n"),
               {"line 3", "not a time: '7'; the other times are dates"});
  expect_error(options_for("user,item,time\n1,2,1.5\n1,3,nan\n"), {"not a time: 'nan'"});
  expect_error(options_for("user,item,is_click\n1,2,nan\n"), {"not a number: 'nan'"});
}

TEST_F(BadInput, MessagesHoldNoControlCharacters) {
  for (const char* text : {"\x1b[2J\x07", "\x1b[2J,\x07\x01,\x7f"}) {
    const PrepareOptions options = options_for(text);
    const std::string message = test::message_of([&] { prepare(options); });
    EXPECT_NE(message.find("?[2J"), std::string::npos) << message;
    for (const char c : message) EXPECT_GE(c, ' ') << static_cast<int>(c);
  }
}

TEST_F(BadInput, WrongWordsAreTold) {
  PrepareOptions plain = options_for("user,item\n1,2\n");
  plain.keep_signal = "is_click";
  expect_error(plain, {"--keep-signal is_click", "has no signal columns", "--signal-columns"});
  plain.keep_signal.clear();
  plain.bad_rows = {.skip = true, .max_bad = -1};
  expect_error(plain, {"--max-bad is -1"});

  PrepareOptions options = options_for("user,item\n1,2\n");
  options.ids = "letters";
  expect_error(options, {"--ids is auto, integer or string, not 'letters'"});
  options = options_for("user,item,time\n1,2,3\n");
  options.time_unit = "weeks";
  expect_error(options, {"--time-unit is auto, s or ms, not 'weeks'"});
  std::string wide = "user,item";
  for (int i = 0; i < 33; ++i) wide += ",is_" + std::to_string(i);
  expect_error(options_for(wide + "\n"), {"33 signal columns"});
}

}  // namespace
}  // namespace turbogr::data
