#include "turbogr/data/target_counts.h"

namespace turbogr::data {

namespace {

// Calls visit(item) for each event of the windows, or for their targets alone.
template <class Visit>
void for_each_item(const Store& store, std::span<const Window> windows, bool targets_only,
                   const Visit& visit) {
  std::vector<std::int64_t> items;
  for (const Window& window : windows) {
    const std::int64_t skipped = targets_only ? 1 : 0;
    items.resize(static_cast<std::size_t>(window.length + 1 - skipped));
    store.read_items(window.first_event + skipped, items);
    for (const std::int64_t item : items) visit(static_cast<std::size_t>(item));
  }
}

}  // namespace

std::vector<std::int64_t> target_counts(const Store& store, std::span<const Window> windows) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(store.num_items()));
  for_each_item(store, windows, /*targets_only=*/true, [&](std::size_t item) { ++counts[item]; });
  return counts;
}

std::vector<std::uint8_t> items_in(const Store& store, std::span<const Window> windows) {
  std::vector<std::uint8_t> present(static_cast<std::size_t>(store.num_items()));
  for_each_item(store, windows, /*targets_only=*/false,
                [&](std::size_t item) { present[item] = 1; });
  return present;
}

}  // namespace turbogr::data
