#include "turbogr/data/arrow/arrow_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/data/arrow/arrow_column.h"
#include "turbogr/data/file.h"
#include "turbogr/data/interrupt.h"

namespace turbogr::data {
namespace {

void append_field(std::string& line, std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) {
    line += text;
    return;
  }
  line += '"';
  for (const char c : text) line += c == '"' ? std::string_view("\"\"") : std::string_view(&c, 1);
  line += '"';
}

struct TextColumn {
  std::size_t place;  // in the stream
  char separator;
  ArrowColumn values;
};

std::vector<TextColumn> columns_of(const ArrowStream& stream, const ArrowCsvOptions& options,
                                   ArrowCsvColumns& about) {
  const std::vector<std::string> names = stream.column_names();
  std::vector<TextColumn> columns;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string where =
        fmt::format("'{}': column '{}'", stream.name(), printable(names[i], 80));
    try {
      columns.push_back({i, options.separator(names[i]), ArrowColumn(stream.column(i), where)});
    } catch (const Error&) {
      const auto& needed = options.needed;
      if (std::find(needed.begin(), needed.end(), names[i]) != needed.end()) throw;
      about.left_out.push_back(names[i]);
      continue;
    }
    if (columns.back().values.is_list()) about.lists.push_back(names[i]);
  }
  TGR_CHECK(!columns.empty(), "'", stream.name(), "' has no columns that can be read");
  return columns;
}

}  // namespace

ArrowCsvColumns write_arrow_csv(ArrowStream& stream, const std::filesystem::path& path,
                                const ArrowCsvOptions& options) {
  ArrowCsvColumns about;
  std::vector<TextColumn> columns = columns_of(stream, options, about);
  const std::vector<std::string> names = stream.column_names();
  std::string line;
  const auto write_fields = [&](auto&& field) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) line += ',';
      append_field(line, field(columns[i]));
    }
    line += '\n';
  };
  write_fields([&](const TextColumn& column) -> std::string_view { return names[column.place]; });
  FileWriter out(path);
  std::string scratch;
  while (stream.next()) {
    const ArrowArray& batch = stream.batch();
    for (TextColumn& column : columns) {
      const ArrowArray& values = *batch.children[column.place];
      TGR_CHECK(values.length >= batch.length + batch.offset, column.values.where(), ": ",
                values.length, " values in a batch of ", batch.length, " rows");
      column.values.bind(values, batch.offset);
    }
    for (std::int64_t row = 0; row < batch.length; ++row) {
      write_fields([&](const TextColumn& column) {
        return column.values.text(row, scratch, column.separator);
      });
      if (line.size() < (std::size_t{1} << 16)) continue;
      check_interrupt();
      out.append(line.data(), line.size());
      line.clear();
    }
  }
  out.append(line.data(), line.size());
  out.close(/*sync=*/false);
  return about;
}

}  // namespace turbogr::data
