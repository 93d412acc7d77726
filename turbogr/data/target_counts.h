// How often each item is a target of a set of windows: the distribution that training positives
// follow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/data/store.h"
#include "turbogr/data/windows.h"

namespace turbogr::data {

// [num_items]. Throws when the store holds an item out of range.
std::vector<std::int64_t> target_counts(const Store& store, std::span<const Window> windows);

// [num_items]: 1 for an item that occurs in the windows, as input or target; else 0.
std::vector<std::uint8_t> items_in(const Store& store, std::span<const Window> windows);

}  // namespace turbogr::data
