#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/compress.h"
#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/byte_source.h"
#include "turbogr/data/csv_reader.h"

namespace turbogr::data {
namespace {

using test::has;
using test::message_of;
using test::TemporaryFolder;
using test::write_file;
using Record = std::vector<std::string>;

// Hands out one byte at a time, so that every record crosses a border.
class Trickle final : public ByteSource {
 public:
  explicit Trickle(std::string bytes) : bytes_(std::move(bytes)) {}
  std::size_t read(std::span<char> out) override {
    std::size_t count = 0;
    for (; count < out.size() && at_ < bytes_.size(); ++count) out[count] = bytes_[at_++];
    return count;
  }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

std::vector<Record> records_of(const std::string& text, CsvDialect dialect = {}) {
  Trickle source(text);
  CsvReader reader(source, "test", dialect);
  std::vector<Record> records;
  while (reader.next()) records.emplace_back(reader.fields().begin(), reader.fields().end());
  return records;
}

std::string read_whole(const std::filesystem::path& path) {
  Input input = open_input(path);
  std::string text;
  std::vector<char> block(1000);
  for (std::size_t count = 0; (count = input.bytes->read(block)) > 0;) {
    text.append(block.data(), count);
  }
  return text;
}

TEST(CsvReader, PeeksAtAWholeFirstLineHoweverLong) {
  const std::string header = "user," + std::string(3 << 20, 'x') + ",item";
  Trickle source(header + "\n1,2,3\n");
  CsvReader reader(source, "test", {});
  EXPECT_TRUE(reader.peek().starts_with(header + "\n"));
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.fields().size(), 3u);
  EXPECT_EQ(reader.fields()[2], "item");
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.fields()[0], "1");
}

TEST(CsvReader, SplitsFieldsOfEveryLength) {
  EXPECT_EQ(records_of("a,b\n1,2\n"), (std::vector<Record>{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(records_of(",,\n"), (std::vector<Record>{{"", "", ""}}));
  EXPECT_EQ(records_of("12345678,12345678901,,1\nx"),
            (std::vector<Record>{{"12345678", "12345678901", "", "1"}, {"x"}}));
  // Bytes next to the delimiter's in value must not be taken for it.
  EXPECT_EQ(records_of("-+,\xac-\n", {.delimiter = ","}), (std::vector<Record>{{"-+", "\xac-"}}));
  EXPECT_TRUE(records_of("").empty());
}

TEST(CsvReader, TakesCrlfABlankLineAndAByteOrderMark) {
  EXPECT_EQ(records_of("\xef\xbb\xbf"
                       "a,b\r\n\r\n\n1,2\r\n3,"),
            (std::vector<Record>{{"a", "b"}, {"1", "2"}, {"3", ""}}));
}

TEST(CsvReader, TakesQuotesWithDelimitersLineBreaksAndQuotesInside) {
  EXPECT_EQ(records_of("\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\"\n1,2,3\n"),
            (std::vector<Record>{{"a,b", "say \"hi\"", "two\nlines"}, {"1", "2", "3"}}));
  EXPECT_EQ(records_of("\"\",x\n"), (std::vector<Record>{{"", "x"}}));
  EXPECT_EQ(records_of("5\" disc,\"a\"b,\n"), (std::vector<Record>{{"5\" disc", "ab", ""}}));
  EXPECT_EQ(records_of("\"a\n", {.quotes = false}), (std::vector<Record>{{"\"a"}}));
}

TEST(CsvReader, TakesDelimitersOfTwoCharacters) {
  EXPECT_EQ(records_of("1::2:3::\n", {.delimiter = "::", .quotes = false}),
            (std::vector<Record>{{"1", "2:3", ""}}));
  EXPECT_TRUE(has(message_of([] { records_of("a", {.delimiter = ""}); }), "one or two"));
}

TEST(CsvReader, CountsLinesAlsoInsideQuotes) {
  MemorySource source("h\n\"x\ny\"\n\nz");
  CsvReader reader(source, "test", {});
  std::vector<std::int64_t> lines;
  while (reader.next()) lines.push_back(reader.line());
  EXPECT_EQ(lines, (std::vector<std::int64_t>{1, 2, 5}));
  EXPECT_TRUE(reader.ends_without_newline());
}

TEST(CsvReader, TellsAnUnclosedQuote) {
  MemorySource source("a,b\n\"open,1\n2,3\n");
  CsvReader reader(source, "test", {});
  ASSERT_TRUE(reader.next());
  EXPECT_FALSE(reader.unclosed_quote());
  ASSERT_TRUE(reader.next());
  EXPECT_TRUE(reader.unclosed_quote());
  EXPECT_EQ(reader.line(), 2);
  EXPECT_FALSE(reader.next());
}

TEST(CsvReader, QuotesSeenBeforeTheDialectIsKnownAreTextWhereItKnowsNone) {
  MemorySource source("1::\"Up::x\n2::Heat::y\n3::\"It\"::z\n");
  CsvReader reader(source, "test", {});
  EXPECT_FALSE(reader.peek().empty());
  reader.set_dialect({.delimiter = "::", .quotes = false});
  std::vector<Record> records;
  while (reader.next()) records.emplace_back(reader.fields().begin(), reader.fields().end());
  EXPECT_EQ(records,
            (std::vector<Record>{{"1", "\"Up", "x"}, {"2", "Heat", "y"}, {"3", "\"It\"", "z"}}));
}

TEST(CsvReader, CountsTheLinesAnUnclosedQuoteSwallows) {
  // To the end of the file, with and without a line break there; and up to the quote that opens
  // another field.
  for (const char* text :
       {"a\n1,\"x\n2,y\n3,z\n", "a\n1,\"x\n2,y\n3,z", "a\n1,\"x\n2,y\n3,\"z\n"}) {
    MemorySource source(text);
    CsvReader reader(source, "test", {});
    ASSERT_TRUE(reader.next());
    EXPECT_EQ(reader.num_lines(), 1);
    ASSERT_TRUE(reader.next());
    EXPECT_TRUE(reader.unclosed_quote()) << text;
    EXPECT_EQ(reader.line(), 2);
    EXPECT_EQ(reader.num_lines(), 3) << text;
    EXPECT_FALSE(reader.next());
  }
  MemorySource source("1,\"two\nlines\"\n");
  CsvReader reader(source, "test", {});
  ASSERT_TRUE(reader.next());
  EXPECT_FALSE(reader.unclosed_quote());
  EXPECT_EQ(reader.num_lines(), 2);
}

TEST(CsvReader, BoundsTheFieldsOfARecord) {
  for (const char* delimiter : {",", "::"}) {
    for (const bool quotes : {false, true}) {
      std::string many = quotes ? "\"a\"" : "a";
      for (std::size_t i = 0; i + 1 < kMostFields; ++i) many += delimiter;
      const std::string text = many + "\n" + many + delimiter + "b" + delimiter + "c\nd\n";
      MemorySource source(text);
      CsvReader reader(source, "test", {.delimiter = delimiter, .quotes = quotes});
      ASSERT_TRUE(reader.next());
      EXPECT_EQ(reader.fields().size(), kMostFields);
      EXPECT_TRUE(reader.fields()[0] == "a");
      ASSERT_TRUE(reader.next());
      ASSERT_EQ(reader.fields().size(), kMostFields + 1);
      EXPECT_EQ(reader.fields()[kMostFields], std::string("b") + delimiter + "c");
      ASSERT_TRUE(reader.next());
      EXPECT_EQ(reader.fields().size(), 1u);
    }
  }
}

TEST(CsvReader, RefusesARecordWithoutEnd) {
  for (const std::string start : {"a\nb", "a\n\"b\n"}) {
    const std::string message =
        message_of([&] { records_of(start + std::string(kLongestRecord, 'x')); });
    EXPECT_TRUE(has(message, "line 2: a record of more than 4 MB")) << message;
  }
}

TEST(CsvReader, RefusesUtf16) {
  EXPECT_TRUE(has(message_of([] {
                    records_of(
                        std::string("\xff\xfe"
                                    "a\0",
                                    4));
                  }),
                  "UTF-16"));
}

TEST(CsvReader, LinesThatEndInCrAloneAreSaid) {
  EXPECT_TRUE(has(message_of([] { records_of("user,item\r1,2\r3,4\r"); }), "tr '\\r' '\\n'"));
  EXPECT_EQ(records_of("user,item\r"), (std::vector<Record>{{"user", "item"}}));
  EXPECT_EQ(records_of("a,b\r\nc,d\r\n"), (std::vector<Record>{{"a", "b"}, {"c", "d"}}));
}

TEST(CsvReader, ReadsRecordsLargerThanItsFirstBlock) {
  const std::string large(3'000'000, 'x');
  EXPECT_EQ(records_of("a," + large + "\nb,c\n"), (std::vector<Record>{{"a", large}, {"b", "c"}}));
  EXPECT_EQ(records_of("a,\"" + large + "\n\"\nb,c\n"),
            (std::vector<Record>{{"a", large + "\n"}, {"b", "c"}}));
}

TEST(ByteSource, UnpacksGzipAndZstdAlsoInSeveralPieces) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100000; ++i) text += std::to_string(i) + "\n";
  EXPECT_EQ(read_whole(write_file(folder / "a.csv", text)), text);
  EXPECT_EQ(read_whole(write_file(folder / "a.csv.gz", test::gzip(text) + test::gzip("end"))),
            text + "end");
  EXPECT_EQ(read_whole(write_file(folder / "a.zst", test::zstd(text) + test::zstd("end"))),
            text + "end");
  EXPECT_EQ(read_whole(write_file(folder / "named_otherwise.csv", test::gzip(text))), text);
}

TEST(ByteSource, SaysWhenPackedDataIsCutOrDamaged) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 10000; ++i) text += std::to_string(i * 77) + "\n";
  const std::string gz = test::gzip(text);
  const std::string zst = test::zstd(text);
  const auto message = [&](const std::string& name, const std::string& bytes) {
    return message_of([&] { read_whole(write_file(folder / name, bytes)); });
  };
  EXPECT_TRUE(has(message("a.gz", gz.substr(0, gz.size() / 2)), "truncated"));
  EXPECT_TRUE(has(message("a.zst", zst.substr(0, zst.size() / 2)), "truncated"));
  std::string bad = gz;
  for (std::size_t i = 100; i < 120; ++i) bad[i] = static_cast<char>(bad[i] ^ 0x55);
  EXPECT_TRUE(has(message("a.gz", bad), "damaged gzip"));
  bad = zst;
  for (std::size_t i = 4; i < 40; ++i) bad[i] = static_cast<char>(bad[i] ^ 0x55);
  EXPECT_TRUE(has(message("a.zst", bad), "damaged zstd"));
  EXPECT_TRUE(has(message("a.gz", "1,2\n"), "no gzip data"));
  EXPECT_TRUE(has(message("a.zst", "1,2\n"), "no zstd data"));
  EXPECT_TRUE(has(message_of([&] { open_input(folder / "none"); }), "check the path"));
  EXPECT_TRUE(has(message_of([&] { open_input(folder.path()); }), "is a folder"));
}

}  // namespace
}  // namespace turbogr::data
