#include "turbogr/data/repeats.h"

#include <algorithm>
#include <vector>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

// The first events of a user, `count` of them.
void read_history(const Store& store, std::int64_t user, std::int64_t count,
                  std::vector<std::int64_t>& items) {
  const std::int64_t first = store.offsets()[static_cast<std::size_t>(user)];
  TGR_CHECK(first >= 0 && count >= 0 && count <= store.num_events() - first,
            "the store's offsets of user ", user, " are damaged; run `turbogr data verify`");
  items.resize(static_cast<std::size_t>(count));
  store.read_items(first, items);
}

}  // namespace

RepeatCount repeated_events(const Store& store) {
  // The user who last met an item: histories stand end to end, so one pass and no sorting.
  std::vector<std::int64_t> last_user(static_cast<std::size_t>(store.num_items()), -1);
  std::vector<std::int64_t> items;
  RepeatCount repeats;
  for (std::int64_t user = 0; user < store.num_users(); ++user) {
    const auto at = static_cast<std::size_t>(user);
    read_history(store, user, store.offsets()[at + 1] - store.offsets()[at], items);
    for (const std::int64_t item : items) {
      TGR_CHECK(item >= 0 && item < store.num_items(), "'", store.folder().string(),
                "' names item ", item, ", and there are ", store.num_items(),
                "; the store is damaged, run `turbogr data verify`");
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
    const std::int64_t begin = store.offsets()[static_cast<std::size_t>(window.user)];
    read_history(store, window.user, window.first_event + window.length + 1 - begin, items);
    const bool met = std::find(items.begin(), items.end() - 1, items.back()) != items.end() - 1;
    repeats.repeated += met ? 1 : 0;
    ++repeats.events;
  }
  return repeats;
}

}  // namespace turbogr::data
