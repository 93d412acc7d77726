// A ranking model's batch, borrowed: sequences, the ids of every feature, and what became of the
// targets.
//
// B sequences, N tokens, c prefix features, F item features, M targets, K tasks.
#pragma once

#include <cstdint>
#include <span>

#include "turbogr/core/view.h"
#include "turbogr/ops/rows/event_sequences.h"

namespace turbogr::model {

// The ids of one feature for each sequence, or for each event. A bag has any number of them.
struct FeatureIds {
  View<const std::int64_t, 1> ids;
  Offsets offsets;                    // of bags; empty where there is one id each
  View<const float, 1> weights = {};  // factors on the rows of bags that are summed; empty: 1
};

// Memory of the host.
struct RankingBatch {
  ops::EventSequences sequences;
  View<const std::uint32_t, 1> actions;   // [N - B c], bits of events; a target's are never read
  View<const std::uint64_t, 1> row_keys;  // [N], tells tokens apart for dropout on any rank
  std::span<const FeatureIds> prefix;     // [c], of sequences
  std::span<const FeatureIds> items;      // [F], of events, the item's id first
  Rows<const float> labels, weights;      // [M, K]
  Rows<const float> bases = {};           // [M, K] what logits start from; no rows: 0

  std::int64_t num_targets() const { return labels.rows; }
};

}  // namespace turbogr::model
