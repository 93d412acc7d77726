// A store as text, ids spelled as in the log: "u7: a@10 b@20", a line a user.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/data/store.h"

namespace turbogr::test {

inline std::vector<std::string> histories_of(const data::Store& store) {
  std::vector<std::string> lines;
  std::vector<std::int64_t> items(static_cast<std::size_t>(store.num_events()));
  store.read_items(0, items);
  for (std::int64_t user = 0; user < store.num_users(); ++user) {
    std::string line = store.user_ids().text(user) + ":";
    for (std::int64_t e = store.offsets()[static_cast<std::size_t>(user)];
         e < store.offsets()[static_cast<std::size_t>(user) + 1]; ++e) {
      const auto at = static_cast<std::size_t>(e);
      line += ' ' + store.item_ids().text(items[at]);
      if (store.has_times()) line += '@' + std::to_string(store.times()[at]);
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace turbogr::test
