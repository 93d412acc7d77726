// How often users come back to items they have met: in music, shops and games most of the time, in
// films hardly ever. What decides whether items already met belong into a ranking.
#pragma once

#include <cstdint>
#include <span>

#include "turbogr/data/store.h"
#include "turbogr/data/windows.h"

namespace turbogr::data {

// From this share of targets on a ranking without the items already met would miss too much: what
// eval.seen = "auto" goes by.
inline constexpr double kManyRepeats = 0.1;

struct RepeatCount {
  std::int64_t events = 0;    // that were looked at
  std::int64_t repeated = 0;  // those of an item that their user had met before

  double share() const {
    return events > 0 ? static_cast<double>(repeated) / static_cast<double>(events) : 0;
  }
};

// Of all events of a store.
RepeatCount repeated_events(const Store& store);

// Of the targets of an evaluation split: the event after each window, against all before it.
RepeatCount repeated_targets(const Store& store, std::span<const Window> windows);

}  // namespace turbogr::data
