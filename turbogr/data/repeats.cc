#include "turbogr/data/repeats.h"

#include <algorithm>
#include <vector>

namespace turbogr::data {
RepeatCount repeated_events(const Store& store) {
  // The user who last met an item: histories stand end to end, so one pass and no sorting.
  std::vector<std::int64_t> last_user(static_cast<std::size_t>(store.num_items()), -1);
  std::vector<std::int64_t> items;
  RepeatCount repeats;
  for (std::int64_t user = 0; user < store.num_users(); ++user) {
    const auto [first, count] = store.events_of(user);
    items.resize(static_cast<std::size_t>(count));
    store.read_items(first, items);
    for (const std::int64_t item : items) {
      std::int64_t& last = last_user[static_cast<std::size_t>(item)];
      repeats.repeated += last == user ? 1 : 0;
      last = user;
    }
    repeats.events += static_cast<std::int64_t>(items.size());
  }
  return repeats;
}

RepeatCount repeated_targets(const Store& store, std::span<const Window> windows) {
  std::vector<std::int64_t> items;
  RepeatCount repeats;
  for (const Window& window : windows) {
    const std::int64_t first = store.events_of(window.user).first;
    items.resize(static_cast<std::size_t>(window.first_event + window.length + 1 - first));
    store.read_items(first, items);
    const bool met = std::find(items.begin(), items.end() - 1, items.back()) != items.end() - 1;
    repeats.repeated += met ? 1 : 0;
    ++repeats.events;
  }
  return repeats;
}

}  // namespace turbogr::data
