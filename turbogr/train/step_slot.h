// What one step needs of the item table: which rows, their values, and their gradients. A trainer
// with the whole table has one; a pipeline over ranks has one a step in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/train/planned_bytes.h"
#include "turbogr/train/touched_rows.h"

namespace turbogr::train {

struct RetrievalOptions;

template <class T>
struct StepSlot {
  TouchedRows touched;
  std::vector<Tensor> negative_ids;         // on the host: [capacity, R] a batch, or one [R]
  std::vector<std::int64_t> num_negatives;  // drawn, a batch
  Tensor corrections;                       // on the host: [U], of the touched rows' logits
  Tensor compact;                // [U, D], touched rows in T; only the positives' beside f16 ones
  Tensor half_rows, half_scale;  // [U, D] and [U], touched rows in f16
  Tensor gradient;               // [U, D], f32

  StepSlot(const Context& ctx, const RetrievalOptions& options, std::int64_t num_items);
  // What one takes, without making it.
  static PlannedBytes bytes_of(Device device, const RetrievalOptions& options,
                               std::int64_t num_items);
};

// Of one batch of a step.
std::int64_t negatives_a_batch(const RetrievalOptions& options);
// Every token touches its item, its target and its negatives, and no more rows than there are.
std::int64_t touched_capacity(const RetrievalOptions& options, std::int64_t num_items);

}  // namespace turbogr::train
