// Sequences to recommend from: users of a store with all they did, or a history given by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turbogr/data/batch.h"
#include "turbogr/data/store.h"

namespace turbogr::run {

struct HistoryOptions {
  std::int64_t max_length = 200;
  bool milliseconds = false;               // the unit the model was trained with
  std::optional<std::int64_t> query_time;  // in the store's unit; else the last event's
};

// Whole histories, the last max_length events as inputs, all of them as seen items. Users without
// events are refused by id.
void history_batch(const data::Store& store, std::span<const std::int64_t> users,
                   const HistoryOptions& options, data::Batch& batch);

struct HistoryEvent {
  std::int64_t item;
  std::int64_t time;
  std::uint32_t signals = 0;
};
// Histories that are in no store; none of them may be empty.
void history_batch(const data::Store& store, std::span<const std::vector<HistoryEvent>> histories,
                   const HistoryOptions& options, data::Batch& batch);

}  // namespace turbogr::run
