// What the first rows of a log say about the columns that nobody has said anything about.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/field.h"
#include "turbogr/data/log_layout.h"

namespace turbogr::data {

// Whether nine in ten of a column's fields are integers: a few broken rows must not turn numbers
// into strings.
bool mostly_integers(const LogLayout& layout, std::string_view first_bytes, int column);

// The fields of a column that are not empty.
std::vector<std::string> sample_fields(const LogLayout& layout, std::string_view first_bytes,
                                       int column);

// The spelling most of the times have; whole and decimal seconds may be mixed and are decimal then.
// None when there is no time to be seen.
std::optional<TimeSpelling> usual_time_spelling(const LogLayout& layout,
                                                std::string_view first_bytes);

}  // namespace turbogr::data
