// Lengths of histories from a CSV file: the first column, one a line, under a header or not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace turbogr::data {

// Throws when there is no such file, no length in it, or a line that is none, with its number.
std::vector<std::int64_t> read_length_table(const std::string& path);

}  // namespace turbogr::data
