// What HSTU and FuXi attention share: which keys a query sees, and the trained tables over position
// and time.
#pragma once

#include <cstdint>

#include "turbogr/core/device.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/host_device.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

enum class AttentionKind : std::uint8_t { kHstu, kFuxi };

// A sequence is [prefix | history | targets]. A prefix token sees every token that is not a target;
// a history token sees the prefix and the history up to itself; a target sees the prefix, the
// history and itself, never another target.
struct AttentionMask {
  // 0: unlimited. Else a history token sees history no more than `window` tokens back (j >= i -
  // window) and a target the last `window` tokens of the history. The prefix is always seen.
  std::int64_t window = 0;
  View<const std::int64_t, 1> num_prefix;   // [B], or empty: none
  View<const std::int64_t, 1> num_targets;  // [B], or empty: none
  // For the position table all targets of a sequence stand where the first one does, so that what
  // one of them attends to does not depend on how many are before it. On a CPU so far.
  bool targets_together = false;
};

// Trained tables, shared by all heads. An empty table is not used.
//   position [2S - 1]: key j of query i has weight position[S - 1 + j - i]; no sequence exceeds S.
//                      With targets_together the places of targets are that of the first one
//   time     [129]:    weight time[time_bucket(query_times[i], key_times[j])]; times in any order
template <class T>
struct AttentionBias {
  View<const Accum<T>, 1> position;
  View<const Accum<T>, 1> time;
  View<const std::int64_t, 1> key_times;    // [N], needed with a time table
  View<const std::int64_t, 1> query_times;  // [N], needed with a time table
};

// Added to. An empty gradient is not computed.
template <class T>
struct AttentionBiasGradient {
  View<Accum<T>, 1> position;
  View<Accum<T>, 1> time;
};

// Where q, k and v are SiLU of other rows: those, slices of one matrix. Empty: they are not.
template <class T>
struct BeforeSilu {
  Rows<const T> q;
  Rows<const T> k;
  Rows<const T> v;

  bool empty() const { return q.data == nullptr; }
};

// What scratch memory depends on.
struct AttentionShape {
  Device device = Device::kCpu;
  int threads = 1;
  std::int64_t tokens = 0;
  std::int64_t batch = 0;
  std::int64_t max_length = 0;  // of the sequences in the batch; 0: not known
  int heads = 1;
  std::int64_t query_width = 0;      // of one head
  std::int64_t value_width = 0;      // of one head
  bool tables = true;                // whether a position or time table is used
  bool masks = false;                // whether a window, a prefix or targets are used
  bool planned = false;              // whether calls are given an AttentionPlan
  bool deterministic = false;        // whether backward calls ask for it
  std::int64_t position_length = 0;  // S of the position table, 0: none
};

// The mask of one sequence.
struct SequenceMask {
  std::int64_t length = 0;
  std::int64_t prefix = 0;
  std::int64_t history_end = 0;  // where targets begin
  std::int64_t window = 0;
  std::int64_t last_place = 0;  // of a token, for the position table

  TGR_HD std::int64_t place(std::int64_t token) const {
    return token < last_place ? token : last_place;
  }

  TGR_HD bool sees(std::int64_t query, std::int64_t key) const {
    if (key < prefix) return true;
    if (key >= history_end) return query == key;
    if (query < prefix) return true;
    if (query >= history_end) return window == 0 || key >= history_end - window;
    return key <= query && (window == 0 || key >= query - window);
  }

  // False only where no query of [query, query + queries) sees a key of [key, key + keys).
  TGR_HD bool may_see(std::int64_t query, std::int64_t queries, std::int64_t key,
                      std::int64_t keys) const {
    if (key < prefix || query < prefix) return true;
    if (key >= query + queries) return false;
    const std::int64_t last = query < history_end ? query : history_end;
    return window == 0 || key + keys > last - window;
  }
};

TGR_HD inline SequenceMask sequence_mask(const AttentionMask& mask, Offsets offsets,
                                         std::int64_t b) {
  const std::int64_t length = offsets(b + 1) - offsets(b);
  const std::int64_t history_end = length - (mask.num_targets.empty() ? 0 : mask.num_targets(b));
  return {.length = length,
          .prefix = mask.num_prefix.empty() ? 0 : mask.num_prefix(b),
          .history_end = history_end,
          .window = mask.window,
          .last_place = mask.targets_together ? history_end : length};
}

}  // namespace turbogr::ops
