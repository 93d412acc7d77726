// Finds ids that point outside a table before anything is written. For the CPU kernels.
#pragma once

#include <atomic>
#include <cstdint>

#include "turbogr/core/thread_pool.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// The first position whose id is outside [0, bound), or -1.
template <class Index>
std::int64_t first_out_of_range(ThreadPool& pool, const Index* ids, std::int64_t count,
                                std::int64_t bound) {
  std::atomic<std::int64_t> first{count};
  parallel_ranges(pool, count, 1 << 14, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (ids[i] >= 0 && ids[i] < bound) continue;
      std::int64_t seen = first.load(std::memory_order_relaxed);
      while (i < seen && !first.compare_exchange_weak(seen, i)) {
      }
      return;
    }
  });
  return first == count ? -1 : first.load();
}

}  // namespace turbogr::ops
