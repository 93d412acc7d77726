// Made-up steps for trainers: sequences of random items with times, and a rank's share of them.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/core/philox.h"
#include "turbogr/data/batch.h"
#include "turbogr/data/windows.h"

namespace turbogr::test {

struct StepShape {
  std::int64_t sequences = 9;
  std::int64_t longest = 12;
  std::int64_t items = 50;
};

// Sequence i of step `step`; the same whoever asks.
inline void append_sequence(const StepShape& shape, int step, std::int64_t i, data::Batch& batch) {
  PhiloxStream random(31, static_cast<std::uint64_t>(step * 1000 + i));
  const auto length =
      static_cast<std::int64_t>(1 + random.below(static_cast<std::uint64_t>(shape.longest)));
  const auto items = static_cast<std::uint64_t>(shape.items);
  std::int64_t time = 1000;
  auto item = static_cast<std::int64_t>(random.below(items));
  for (std::int64_t position = 0; position < length; ++position) {
    const std::int64_t next_time = time + 1 + static_cast<std::int64_t>(random.below(500));
    const auto next = static_cast<std::int64_t>(random.below(items));
    batch.items.push_back(item);
    batch.targets.push_back(next);
    batch.key_times.push_back(time);
    batch.query_times.push_back(next_time);
    batch.row_keys.push_back((static_cast<std::uint64_t>(i) << data::kPositionBits) |
                             static_cast<std::uint64_t>(position));
    item = next;
    time = next_time;
  }
  batch.offsets.push_back(static_cast<std::int64_t>(batch.items.size()));
  batch.users.push_back(i);
  batch.windows.push_back(i);
  batch.first_events.push_back(20 * i + step % 3);
}

// The sequences of one step that a rank has: every `ranks`-th from its own number on.
inline data::Batch share_of(const StepShape& shape, int step, int rank, int ranks) {
  data::Batch batch;
  batch.offsets.push_back(0);
  for (std::int64_t i = rank; i < shape.sequences; i += ranks) {
    append_sequence(shape, step, i, batch);
  }
  return batch;
}

}  // namespace turbogr::test
