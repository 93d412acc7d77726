// Defaults for one's own data: values of keys that neither the config nor the command line names,
// chosen from the store's size, so that `turbogr train --data.store=S` makes a model worth having.
// A key that is named is never changed.
//
//   choose_for_store(config, named, size_of(store, 200));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/store.h"
#include "turbogr/run/config.h"

namespace turbogr::run {

// What the choice goes by.
struct StoreSize {
  std::string name{};  // of the store's folder
  std::int64_t users = 0;
  std::int64_t items = 0;
  std::int64_t events = 0;
  std::int64_t recent_events = 0;  // of them, those among their user's last data.max_length
  bool times = true;               // false: only the order of events is known
  bool item_features = false;      // it has some
};
StoreSize size_of(const data::Store& store, std::int64_t max_length);

// Whether any key is left for the store to decide.
bool leaves_to_the_store(Config config, const NamedKeys& named);

// Sets the keys that are not named; returns the names of those it decided.
std::vector<std::string_view> choose_for_store(Config& config, const NamedKeys& named,
                                               const StoreSize& size);

// How the value of a key that is not named is chosen for a store, for `turbogr config --keys`;
// empty when no rule of the task does.
std::string_view how_chosen(std::string_view key, std::string_view task = "retrieval");

}  // namespace turbogr::run
