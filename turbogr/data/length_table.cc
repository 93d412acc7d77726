#include "turbogr/data/length_table.h"

#include <charconv>
#include <fstream>
#include <string_view>

#include "turbogr/core/check.h"

namespace turbogr::data {

std::vector<std::int64_t> read_length_table(const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  std::ifstream file(path);
  TGR_CHECK(file.is_open(), "cannot read the lengths '", path,
            "'; give a CSV file with a length in the first column");
  std::vector<std::int64_t> lengths;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    std::string_view text = line;
    if (number == 1 && text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    text = text.substr(0, text.find_first_of(",\r"));
    if (text.empty() && line.size() <= 1) continue;
    std::int64_t length = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), length);
    const bool whole = result.ec == std::errc() && result.ptr == text.data() + text.size();
    if (number == 1 && !whole) continue;  // the header
    TGR_CHECK(whole && length > 0, "'", path, "', line ", number, ": '", text,
              "' is not a length; the first column holds whole numbers above 0");
    lengths.push_back(length);
  }
  TGR_CHECK(!lengths.empty(), "'", path, "' holds no lengths; wanted one a line");
  return lengths;
}

}  // namespace turbogr::data
