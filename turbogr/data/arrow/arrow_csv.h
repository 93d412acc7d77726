// A table that comes as an Arrow stream, as the CSV file that a store keeps of it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/arrow/arrow_stream.h"

namespace turbogr::data {

struct ArrowCsvOptions {
  // What joins the values of a list in this column.
  std::function<char(std::string_view column)> separator = [](std::string_view) { return '|'; };
  // Columns whose type nothing here reads (structs, decimals, lists of lists) are left out, but
  // for these: then such a type is an error.
  std::vector<std::string> needed;
};

struct ArrowCsvColumns {
  std::vector<std::string> lists;
  std::vector<std::string> left_out;
};

// All columns with a header; missing values are empty fields.
ArrowCsvColumns write_arrow_csv(ArrowStream& stream, const std::filesystem::path& path,
                                const ArrowCsvOptions& options = {});

}  // namespace turbogr::data
