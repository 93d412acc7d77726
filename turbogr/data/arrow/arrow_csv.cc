#include "turbogr/data/arrow/arrow_csv.h"

#include <fmt/format.h>

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

}  // namespace

void write_arrow_csv(ArrowStream& stream, const std::filesystem::path& path) {
  const std::vector<std::string> names = stream.column_names();
  TGR_CHECK(!names.empty(), "'", stream.name(), "' has no columns");
  std::vector<ArrowColumn> columns;
  std::string line;
  for (std::size_t i = 0; i < names.size(); ++i) {
    columns.emplace_back(stream.column(i),
                         fmt::format("'{}': column '{}'", stream.name(), printable(names[i], 80)));
    if (i > 0) line += ',';
    append_field(line, names[i]);
  }
  line += '\n';
  FileWriter out(path);
  std::string scratch;
  while (stream.next()) {
    const ArrowArray& batch = stream.batch();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      columns[i].bind(*batch.children[i], batch.offset);
    }
    for (std::int64_t row = 0; row < batch.length; ++row) {
      for (std::size_t i = 0; i < columns.size(); ++i) {
        if (i > 0) line += ',';
        append_field(line, columns[i].text(row, scratch));
      }
      line += '\n';
      if (line.size() < (std::size_t{1} << 16)) continue;
      check_interrupt();
      out.append(line.data(), line.size());
      line.clear();
    }
  }
  out.append(line.data(), line.size());
  out.close(/*sync=*/false);
}

}  // namespace turbogr::data
