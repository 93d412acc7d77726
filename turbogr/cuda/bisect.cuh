// Which sequence a row belongs to, from where sequences start.
#pragma once

#include <cstdint>

#include "turbogr/core/view.h"

namespace turbogr::cuda {

// The last i of [0, count) with start(i) <= place, or 0; starts never go down.
template <class Start>
__device__ std::int64_t last_start(std::int64_t count, std::int64_t place, Start&& start) {
  std::int64_t low = 0;
  std::int64_t high = count;
  while (low < high) {  // the first start above place
    const std::int64_t middle = (low + high) / 2;
    if (start(middle) <= place) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low > 0 ? low - 1 : 0;
}

// The sequence of row r.
__device__ inline std::int64_t sequence_of(Offsets offsets, std::int64_t r) {
  return last_start(offsets.shape[0] - 1, r, [&](std::int64_t b) { return offsets.data[b]; });
}

}  // namespace turbogr::cuda
