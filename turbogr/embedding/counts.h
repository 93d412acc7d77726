// Numbers of rows a rank, as the exchanges of sharded tables need them.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace turbogr::embedding {

inline constexpr std::int64_t kRowsAtATime = 256;  // copied by one thread

inline std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

inline std::vector<std::int64_t> times(const std::vector<std::int64_t>& counts,
                                       std::int64_t factor) {
  std::vector<std::int64_t> scaled(counts);
  for (std::int64_t& count : scaled) count *= factor;
  return scaled;
}

}  // namespace turbogr::embedding
