// What the layers of one step share besides their activations.
#pragma once

#include <cstdint>

#include "turbogr/core/view.h"
#include "turbogr/ops/attention/attention_plan.h"
#include "turbogr/ops/attention/attention_types.h"
#include "turbogr/ops/dense/dropout.h"

namespace turbogr::model {

// All of it lies on the context's device.
struct StepInput {
  Offsets offsets;                          // [B + 1]
  std::int64_t num_tokens = 0;              // N, the last offset
  View<const std::int64_t, 1> key_times;    // [N], when each event happened
  View<const std::int64_t, 1> query_times;  // [N], when the next one did
  View<const std::uint32_t, 1> signals;     // [N], action bits; for models with actions
  View<const std::uint64_t, 1> row_keys;  // [N], tells tokens apart for dropout; empty: their index
  View<const std::int64_t, 1> num_prefix;   // [B] or empty
  View<const std::int64_t, 1> num_targets;  // [B] or empty
  bool targets_together = false;            // see AttentionMask
  // Where the last layer's result is wanted of targets alone: their tokens [M], what tells those
  // apart for dropout [M], and where each sequence's begin [B + 1]. Empty: of all tokens.
  View<const std::int64_t, 1> targets;
  View<const std::uint64_t, 1> target_keys;
  Offsets target_starts;
  bool few_targets = false;  // of each sequence: attention goes over theirs alone
  bool training = false;     // dropout only then
  double norm_length = 0;    // of this step's attention; 0: the model's own
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  // The model fills these in: shared by its layers.
  const ops::AttentionPlan* plan = nullptr;
  View<std::byte, 1> kept;  // where layers without tables keep the same; empty: each its own
  bool kept_ready = false;  // the first of them has
  bool deterministic = false;

  std::int64_t batch() const { return offsets.shape[0] - 1; }

  // As those see it that have a row for each target and none for other tokens.
  StepInput with_target_rows() const {
    StepInput of_targets = *this;
    of_targets.row_keys = target_keys;
    return of_targets;
  }

  // Dropout `which` of layer `layer` (-1: the input) in this step. 2^24 steps of 2^14 layers fit.
  ops::DropoutOptions dropout(double rate, std::int64_t layer, int which) const {
    const auto place = static_cast<std::uint64_t>((layer + 1) * 4 + which);
    return {.rate = training ? rate : 0.0,
            .seed = seed,
            .site = ((step << 16) | place) & ((std::uint64_t{1} << 40) - 1),
            .row_keys = row_keys};
  }
};

}  // namespace turbogr::model
