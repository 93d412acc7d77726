#include "turbogr/data/core_filter.h"

#include <algorithm>
#include <bit>

namespace turbogr::data {

Survivors::Survivors(std::int64_t count)
    : bits_(static_cast<std::size_t>((count + 63) / 64), ~std::uint64_t{0}) {
  if (count % 64 != 0) bits_.back() = (std::uint64_t{1} << (count % 64)) - 1;
}

void Survivors::number() {
  rank_.clear();
  count_ = 0;
  for (const std::uint64_t word : bits_) {
    rank_.push_back(static_cast<std::uint32_t>(count_));
    count_ += std::popcount(word);
  }
}

CoreFilter find_core(const PairScan& scan, std::int64_t num_users, std::int64_t num_items,
                     std::int64_t min_user, std::int64_t min_item, std::size_t budget_bytes) {
  CoreFilter core{Survivors(num_users), Survivors(num_items)};
  // Whoever has no event left goes, whatever the minimum.
  min_user = std::max<std::int64_t>(min_user, 1);
  min_item = std::max<std::int64_t>(min_item, 1);
  // Users and items stand in one row of counts, users first.
  const std::int64_t total = num_users + num_items;
  const std::int64_t window =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(budget_bytes / sizeof(std::uint32_t)), 1,
                               std::max<std::int64_t>(total, 1));
  std::vector<std::uint32_t> counts;
  for (bool changed = true; changed;) {
    changed = false;
    ++core.rounds;
    for (std::int64_t begin = 0; begin < total; begin += window) {
      const std::int64_t end = std::min(begin + window, total);
      counts.assign(static_cast<std::size_t>(end - begin), 0);
      const auto bump = [&](std::int64_t place) {
        if (place < begin || place >= end) return;
        // Stops at the largest count instead of wrapping; nobody asks for more.
        std::uint32_t& count = counts[static_cast<std::size_t>(place - begin)];
        count += count != 0xffffffffu ? 1 : 0;
      };
      scan([&](std::span<const std::uint32_t> users, std::span<const std::uint32_t> items) {
        for (std::size_t i = 0; i < users.size(); ++i) {
          if (!core.users.has(users[i]) || !core.items.has(items[i])) continue;
          bump(users[i]);
          bump(num_users + items[i]);
        }
      });
      for (std::int64_t place = begin; place < end; ++place) {
        const bool user = place < num_users;
        const std::int64_t id = user ? place : place - num_users;
        Survivors& side = user ? core.users : core.items;
        if (counts[static_cast<std::size_t>(place - begin)] < (user ? min_user : min_item) &&
            side.has(id)) {
          side.drop(id);
          changed = true;
        }
      }
    }
  }
  core.users.number();
  core.items.number();
  return core;
}

}  // namespace turbogr::data
