// "Did you mean": the known name that a mistyped one is closest to.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace turbogr {

// Letters put in, taken out or changed to make one of the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The name with the fewest edits; empty when none is near enough to have been meant.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace turbogr
