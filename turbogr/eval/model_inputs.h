// What a model's forward pass reads of a batch, on its way to the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/feed.h"
#include "turbogr/data/batch.h"
#include "turbogr/data/sequence_parts.h"
#include "turbogr/model/step_input.h"

namespace turbogr::eval {

// A list of events as tokens: `first(b)` stands at each of the `prefix` tokens of sequence b.
template <class V, class First>
View<const V, 1> with_prefix(const Context& ctx, const data::Batch& batch,
                             const std::vector<V>& events, std::int64_t prefix, First&& first,
                             Feed& feed) {
  if (prefix == 0 || events.empty()) return feed.put(ctx, data::view_of(events));
  const View<V, 1> all = feed.take<V>(std::ssize(events) + batch.num_sequences() * prefix);
  std::int64_t at = 0;
  for (std::size_t b = 0; b < batch.users.size(); ++b) {
    for (std::int64_t f = 0; f < prefix; ++f) all(at++) = first(b, f);
    for (std::int64_t i = batch.offsets[b]; i < batch.offsets[b + 1]; ++i) {
      all(at++) = events[static_cast<std::size_t>(i)];
    }
  }
  return feed.send(ctx, all);
}

// `step` and `seed` are those of dropout. `marks` becomes the batch's. Every sequence begins with
// `prefix` tokens that are no events: at the time of the first one, without signals.
inline model::StepInput model_input(const Context& ctx, const data::Batch& batch,
                                    std::int64_t prefix, bool training, std::uint64_t seed,
                                    std::int64_t step, data::SequenceMarks& marks, Feed& feed) {
  const auto first_event = [&](std::size_t b) {
    return static_cast<std::size_t>(batch.offsets[b]);
  };
  const auto first_time = [&](std::size_t b, std::int64_t) {
    return batch.key_times[first_event(b)];
  };
  const auto prefix_key = [&](std::size_t b, std::int64_t f) {  // behind all positions
    const std::uint64_t last = (std::uint64_t{1} << data::kPositionBits) - 1;
    return (batch.row_keys[first_event(b)] | last) - static_cast<std::uint64_t>(f);
  };
  model::StepInput input;
  if (prefix == 0) {
    input.offsets = feed.put(ctx, batch.offsets_view());
  } else {
    const View<std::int64_t, 1> offsets = feed.take<std::int64_t>(std::ssize(batch.offsets));
    for (std::int64_t b = 0; b < offsets.shape[0]; ++b) {
      offsets(b) = batch.offsets[static_cast<std::size_t>(b)] + b * prefix;
    }
    input.offsets = feed.send(ctx, offsets);
  }
  input.num_tokens = batch.num_tokens() + batch.num_sequences() * prefix;
  input.key_times = with_prefix(ctx, batch, batch.key_times, prefix, first_time, feed);
  input.query_times = with_prefix(ctx, batch, batch.query_times, prefix, first_time, feed);
  input.signals = with_prefix(
      ctx, batch, batch.signals, prefix, [](std::size_t, std::int64_t) { return 0u; }, feed);
  input.row_keys = with_prefix(ctx, batch, batch.row_keys, prefix, prefix_key, feed);
  marks.mark(batch.offsets_view(), training);
  input.num_prefix = feed.put(ctx, marks.num_prefix());
  input.num_targets = feed.put(ctx, marks.num_targets());
  input.training = training;
  input.seed = seed;
  input.step = static_cast<std::uint64_t>(step);
  return input;
}

}  // namespace turbogr::eval
