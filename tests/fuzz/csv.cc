// Delimited text through the log reader, as `prepare` reads it: layout, sample, rows, fields. The
// first four bytes choose format, header, delimiter and block size; the rest is the file.
#include <algorithm>
#include <optional>

#include "tests/fuzz/support.h"
#include "turbogr/data/byte_source.h"
#include "turbogr/data/csv_reader.h"
#include "turbogr/data/field.h"
#include "turbogr/data/log_layout.h"
#include "turbogr/data/log_sample.h"

namespace turbogr::data {
namespace {

using fuzz::expect;

void read_fields(const CsvReader& reader, const LogLayout& layout,
                 std::optional<TimeSpelling> spelling) {
  if (reader.fields().size() != layout.num_columns) return;
  for (const std::string_view field : reader.fields()) {
    std::int64_t number = 0;
    float value = 0;
    bool set = false;
    if (parse_integer(field, number) == FieldError::kNone) {
      expect(std::to_string(number) == field, "an integer gives back its text");
    }
    parse_float(field, value);
    parse_signal(field, set);
    parse_time(field, spelling ? *spelling : guess_time_spelling(field), number);
    for (const LabelColumns& label : layout.labels) {
      for (const LabelTest& test : label.label.tests)
        test.of_text ? test.of(field) : test.of(value);
    }
  }
}

void read_log(LogFormat format, const ColumnMap& map, std::size_t block, std::string_view text) {
  MemorySource source(text);
  CsvReader reader(source, "log", {}, block);
  const LogLayout layout = find_layout(format, map, reader.peek(), "log");
  if (layout.is_side_table) return;
  const std::optional<TimeSpelling> spelling = usual_time_spelling(layout, reader.peek());
  mostly_integers(layout, reader.peek(), layout.user);
  reader.set_dialect(layout.dialect);
  std::int64_t next_line = 1;
  while (reader.next()) {
    expect(reader.line() >= next_line && reader.num_lines() >= 1, "line numbers rise");
    expect(!reader.fields().empty() && reader.fields().size() <= kMostFields + 1,
           "a record has fields, and no more than allowed");
    next_line = reader.line() + reader.num_lines();
    read_fields(reader, layout, spelling);
  }
  expect(next_line - 1 <= std::count(text.begin(), text.end(), '\n') + 1,
         "there are no more lines than the file has");
}

}  // namespace
}  // namespace turbogr::data

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turbogr;
  if (size < 4) return 0;
  const auto format = static_cast<data::LogFormat>(data[0] % 3);
  data::ColumnMap map;
  map.header = data[1] % 3 == 0 ? "auto" : data[1] % 3 == 1 ? "yes" : "no";
  if (data[1] & 4) map.user = "1", map.item = "2";
  if (data[1] & 8) map.labels = {"3>=4", "both=3==a&!2<1"};
  constexpr const char* kDelimiters[] = {"", ",", "::", "tab", "|", ";", "comma"};
  map.delimiter = kDelimiters[data[2] % 7];
  const std::size_t block = std::size_t{1} << (data[3] % 16);
  fuzz::errors_are_fine(
      [&] { data::read_log(format, map, block, fuzz::text_of(data + 4, size - 4)); });
  return 0;
}
