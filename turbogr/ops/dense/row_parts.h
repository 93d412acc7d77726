// Sums over rows for parameter gradients: rows are cut into at most kRowParts parts, the cut
// depending on their number alone; each part has its own sums, which are then added in order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "turbogr/core/thread_pool.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

inline constexpr std::int64_t kRowParts = 64;

inline std::int64_t rows_per_part(std::int64_t rows) {
  return std::max<std::int64_t>(32, (rows + kRowParts - 1) / kRowParts);
}

// function(part, begin, end, worker)
template <class Function>
void over_row_parts(ThreadPool& pool, std::int64_t rows, Function&& function) {
  const std::int64_t grain = rows_per_part(rows);
  parallel_ranges(pool, rows, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    function(begin / grain, begin, end, worker);
  });
}

// total += the parts that over_row_parts filled, in order.
template <class A>
void add_row_parts(ThreadPool& pool, std::int64_t rows, View<A, 2> parts, View<A, 1> total) {
  const std::int64_t grain = rows_per_part(rows);
  const std::int64_t filled = (rows + grain - 1) / grain;
  parallel_ranges(pool, total.shape[0], 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t part = 0; part < filled; ++part) {
      for (std::int64_t c = begin; c < end; ++c) total(c) += parts(part, c);
    }
  });
}

}  // namespace turbogr::ops
