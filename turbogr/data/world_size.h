// How large a made-up world may be, of whatever kind it is.
#pragma once

#include <cstdint>

namespace turbogr::data {

inline constexpr std::int64_t kSynthMinLength = 3;  // of a history

struct WorldSize {
  std::int64_t users = 1;
  double mean_length = 0;       // 0: the original's
  std::int64_t max_length = 0;  // 0: none
};

// Throws on what a store could not hold, and on lengths that are none.
void check_world_size(const WorldSize& size);

}  // namespace turbogr::data
