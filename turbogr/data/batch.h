// One rank's share of one step: sequences end to end, no padding. Position in a sequence is a
// token's distance from its sequence's offset.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/core/view.h"
#include "turbogr/data/store.h"
#include "turbogr/data/windows.h"

namespace turbogr::data {

// Buffers keep their memory from batch to batch. B sequences, N tokens.
struct Batch {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // since the epoch's start, or since the position restored

  std::vector<std::int64_t> offsets;       // [B + 1], from 0 to N
  std::vector<std::int64_t> items;         // [N] dense item indices
  std::vector<std::int64_t> targets;       // [N] the item after each; evaluation: the last counts
  std::vector<std::int64_t> key_times;     // [N] time of each event; empty without times
  std::vector<std::int64_t> query_times;   // [N] time of the event after it
  std::vector<std::uint32_t> signals;      // [N] action bits of each event; empty unless asked for
  std::vector<std::uint64_t> row_keys;     // [N] window << kPositionBits | position, for dropout
  std::vector<std::int64_t> users;         // [B] user indices
  std::vector<std::int64_t> windows;       // [B] window indices: the same sample in every epoch
  std::vector<std::int64_t> first_events;  // [B] in the store; empty: events of no store
  // Evaluation splits only: all events of the user before the target, however long ago.
  std::vector<std::int64_t> seen_offsets;  // [B + 1]
  std::vector<std::int64_t> seen_items;

  std::int64_t num_sequences() const { return static_cast<std::int64_t>(users.size()); }
  std::int64_t num_tokens() const { return static_cast<std::int64_t>(items.size()); }
  Offsets offsets_view() const {
    return {offsets.data(), {static_cast<std::int64_t>(offsets.size())}};
  }
};

template <class T>
View<const T, 1> view_of(const std::vector<T>& values) {
  return {values.data(), {static_cast<std::int64_t>(values.size())}};
}

struct CollateOptions {
  TimeUnit time_unit = TimeUnit::kSeconds;  // of the batch; milliseconds only from such a store
  bool signals = false;
  bool seen = false;
};

// Fills batches from a store's mapped columns. One may serve several threads.
class Collator {
 public:
  // Both outlive it. Throws when the store has no signals but they are asked for, or times in
  // seconds but milliseconds are.
  Collator(const Store& store, std::span<const Window> windows, const CollateOptions& options);

  // Room for batches of this size, so that filling them allocates nothing.
  void reserve(Batch& batch, std::int64_t samples, std::int64_t tokens) const;
  // The windows of `indices`, in that order. Throws when the store holds what it may not: an item
  // index out of range.
  void collate(std::span<const std::uint32_t> indices, Batch& batch) const;

 private:
  template <class Item>
  void copy_items(const Item* items, const Window& window, std::int64_t at, Batch& batch) const;
  void copy_times(const Window& window, std::int64_t at, Batch& batch) const;
  void copy_seen(Batch& batch) const;

  const Store& store_;
  std::span<const Window> windows_;
  CollateOptions options_;
  std::span<const std::int32_t> items32_;
  std::span<const std::int64_t> items64_;
  std::span<const std::int64_t> times_;
  bool to_seconds_ = false;
};

}  // namespace turbogr::data
