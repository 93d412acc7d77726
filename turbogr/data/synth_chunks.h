// Users of a synthetic world in chunks small enough for memory, made in parallel and handed over in
// order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "turbogr/core/thread_pool.h"
#include "turbogr/data/interrupt.h"

namespace turbogr::data {

// make(user, slot) runs on any thread, one call a slot at a time; take(user, slot) then runs on
// this thread, users in order. Slots are reused from chunk to chunk.
template <class Slot, class World, class Make, class Take>
void for_each_synth_user(const World& world, ThreadPool& pool, Make&& make, Take&& take) {
  constexpr std::int64_t kChunkEvents = 1 << 20;
  std::vector<Slot> slots;
  for (std::int64_t first = 0; first < world.num_users();) {
    check_interrupt();
    std::int64_t last = first + 1;
    while (last < world.num_users() &&
           world.offset(last + 1) - world.offset(first) <= kChunkEvents) {
      ++last;
    }
    slots.resize(std::max(slots.size(), static_cast<std::size_t>(last - first)));
    parallel_for(pool, last - first, [&](std::int64_t index, int) {
      make(first + index, slots[static_cast<std::size_t>(index)]);
    });
    for (std::int64_t user = first; user < last; ++user) {
      take(user, slots[static_cast<std::size_t>(user - first)]);
    }
    first = last;
  }
}

}  // namespace turbogr::data
