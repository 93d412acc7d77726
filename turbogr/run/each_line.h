// Lines of a file that somebody hands in: a pipe may be one, packed or not, and one without an end
// is not read for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace turbogr::run {

struct LineLimits {
  std::size_t longest;  // bytes of a line
  std::size_t largest;  // of all
};
inline constexpr LineLimits kListLimits = {std::size_t{1} << 16, std::size_t{256} << 20};

// Calls take(line, its number) for each line that is not empty. `wanted` ends messages: "give a
// file with one user id a line".
void for_each_line(const std::string& path, LineLimits limits, const std::string& wanted,
                   const std::function<void(std::string_view, std::int64_t)>& take);

}  // namespace turbogr::run
