// A table that comes as an Arrow stream, as the CSV file that a store keeps of it.
#pragma once

#include <filesystem>

#include "turbogr/data/arrow/arrow_stream.h"

namespace turbogr::data {

// All columns with a header; missing values are empty fields, lists are joined by bars.
void write_arrow_csv(ArrowStream& stream, const std::filesystem::path& path);

}  // namespace turbogr::data
