// Numbers of rows a rank.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace turbogr::embedding {

inline constexpr std::int64_t kRowsAtATime = 256;  // copied by one thread

inline std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace turbogr::embedding
