// What a model's forward pass reads of a batch, on its way to the device.
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/feed.h"
#include "turbogr/data/batch.h"
#include "turbogr/data/sequence_parts.h"
#include "turbogr/model/step_input.h"

namespace turbogr::eval {

// `step` and `seed` are those of dropout. `marks` becomes the batch's.
inline model::StepInput model_input(const Context& ctx, const data::Batch& batch, bool training,
                                    std::uint64_t seed, std::int64_t step,
                                    data::SequenceMarks& marks, Feed& feed) {
  model::StepInput input;
  input.offsets = feed.put(ctx, batch.offsets_view());
  input.num_tokens = batch.num_tokens();
  input.key_times = feed.put(ctx, data::view_of(batch.key_times));
  input.query_times = feed.put(ctx, data::view_of(batch.query_times));
  input.signals = feed.put(ctx, data::view_of(batch.signals));
  input.row_keys = feed.put(ctx, data::view_of(batch.row_keys));
  marks.mark(batch.offsets_view(), training);
  input.num_prefix = feed.put(ctx, marks.num_prefix());
  input.num_targets = feed.put(ctx, marks.num_targets());
  input.training = training;
  input.seed = seed;
  input.step = static_cast<std::uint64_t>(step);
  return input;
}

}  // namespace turbogr::eval
