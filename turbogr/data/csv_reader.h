// Splits delimited text into records and fields, a block at a time. Fields are views into the
// block: they live until the next call. Knows quotes (RFC 4180, with line breaks inside), CRLF, a
// byte-order mark and delimiters of one or two characters; skips blank lines.
//
//   CsvReader reader(*input.bytes, input.name, {.delimiter = ","});
//   while (reader.next()) use(reader.fields()[0]);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/byte_source.h"

namespace turbogr::data {

// More than any log has, and little enough that a file of another kind cannot eat up the memory.
inline constexpr std::size_t kLongestRecord = std::size_t{4} << 20;
inline constexpr std::size_t kMostFields = std::size_t{1} << 16;

struct CsvDialect {
  std::string delimiter = ",";
  bool quotes = true;  // a field that starts with " runs to the closing one; "" inside is one "
};

class CsvReader {
 public:
  // Reads `block` bytes at a time.
  CsvReader(ByteSource& source, std::string name, CsvDialect dialect,
            std::size_t block = std::size_t{1} << 20);

  // To the next record; false at the end. Throws when a record is longer than kLongestRecord.
  bool next();

  // A record of more than kMostFields has kMostFields + 1 here, the last with all that follows.
  const std::vector<std::string_view>& fields() const { return fields_; }
  std::string_view text() const { return text_; }  // the whole record as it stands in the file
  std::int64_t line() const { return line_; }      // of the record's start, from 1
  std::int64_t num_lines() const { return num_lines_; }  // more than one by quotes alone
  bool ends_without_newline() const { return at_end_without_newline_; }
  // A quote in this record stays open to the end of the file, or the first quote to close it stands
  // in the middle of a field on a later line and so belongs to another. Such a record has swallowed
  // lines.
  bool unclosed_quote() const { return unclosed_quote_; }

  // Bytes looked at before the first next(), the whole first line among them: a fair sample for
  // guessing a file's layout.
  std::string_view peek();
  void set_dialect(CsvDialect dialect);  // before the first next(), also after peek()

 private:
  bool refill();  // more bytes behind those not used yet; false at the end of the input
  void look_for_quotes();
  std::size_t find_record_end(std::size_t from);
  void split_plain();
  void split_carefully(bool quotes);  // slower; bounds the number of fields

  ByteSource& source_;
  std::string name_;
  CsvDialect dialect_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // of what is not used yet
  std::size_t end_ = 0;
  bool source_ended_ = false;
  bool started_ = false;
  bool has_quotes_ = false;  // somewhere in the buffer, and the dialect knows them
  bool at_end_without_newline_ = false;
  bool unclosed_quote_ = false;
  std::int64_t line_ = 0;
  std::int64_t num_lines_ = 1;
  std::int64_t next_line_ = 1;
  std::string_view text_;
  std::vector<std::string_view> fields_;
  std::string unquoted_;  // what quoted fields say, without their quotes
};

}  // namespace turbogr::data
