#include "turbogr/data/target_counts.h"

#include "turbogr/core/check.h"

namespace turbogr::data {

std::vector<std::int64_t> target_counts(const Store& store, std::span<const Window> windows) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(store.num_items()));
  std::vector<std::int64_t> targets;
  for (const Window& window : windows) {
    targets.resize(static_cast<std::size_t>(window.length));
    store.read_items(window.first_event + 1, targets);
    for (const std::int64_t item : targets) {
      TGR_CHECK(item >= 0 && item < store.num_items(), "the store holds item ", item, " of user ",
                window.user, " where there are ", store.num_items(), "; run `turbogr data verify`");
      ++counts[static_cast<std::size_t>(item)];
    }
  }
  return counts;
}

}  // namespace turbogr::data
