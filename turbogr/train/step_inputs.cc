#include "turbogr/train/step_inputs.h"

#include <algorithm>

#include "turbogr/eval/model_inputs.h"
#include "turbogr/model/buffers.h"

namespace turbogr::train {
namespace {

using data::Batch;
using model::first_values;

// What one step takes at most.
std::size_t feed_bytes(const RetrievalOptions& options, std::int64_t num_items) {
  const auto n = static_cast<std::size_t>(options.memory.capacity);
  const auto negatives = static_cast<std::size_t>(negatives_a_batch(options));
  // Of a token: item, two times, row key, offset, unique place, group offset; signals, place,
  // position, inverse, place in the ring; its input place.
  // With targets: two counts a sequence, its place among those that predict, its weight.
  const std::size_t marks = options.parts.targets > 0 ? 3 * 8 + 4 : 0;
  // With tokens before the history: five lists more, and the others are longer.
  const auto prefix = static_cast<std::size_t>(prefix_tokens(options));
  const std::size_t more = prefix == 0 ? 0 : (n + prefix) * 9 * 8 + 5 * 256;
  const std::size_t a_batch = (n + 1) * (8 * 8 + 5 * 4 + marks) + negatives * 4 + 21 * 256 + more;
  // Of a touched row: its correction, or of a candidate its place.
  return a_batch * static_cast<std::size_t>(options.accumulate) +
         static_cast<std::size_t>(touched_capacity(options, num_items)) * 4 + 4 * 256;
}

}  // namespace

template <class T>
StepInputs<T>::StepInputs(const Context& ctx, const RetrievalOptions& options,
                          std::int64_t num_items)
    : options_(options),
      marks_(options.parts),
      feed_(ctx, feed_bytes(options, num_items), Feed::Sends::kTogether) {
  if (options.negatives.sharing != ops::NegativeSharing::kNone) {
    token_order_.reserve(options.memory.capacity);
  }
  ctx.host().workspace().reserve(ops::dedup_ids_workspace_bytes(options.memory.capacity));
}

template <class T>
std::int64_t StepInputs<T>::predicting(const Batch& batch) {
  marks_.mark(batch.offsets_view(), /*training=*/true);
  return marks_.predicting();
}

template <class T>
ops::SampledSoftmaxInputs<T> StepInputs<T>::candidates(const Context& ctx,
                                                       const StepInFlight<T>& step,
                                                       const NegativeSampler& sampler) {
  const embedding::StepRows<T> rows = step.item_rows();
  ops::SampledSoftmaxInputs<T> candidates;
  candidates.items = rows.rows;
  candidates.negative_items = rows.half;
  if (sampler.corrects()) {
    candidates.correction = feed_.put(ctx, first_values<float>(step.corrections, step.num_rows()));
  }
  if (step.all_candidates) {
    const View<std::int32_t, 1> places = feed_.take<std::int32_t>(sampler.num_candidates());
    for (std::int64_t c = 0; c < places.shape[0]; ++c) {
      places(c) = step.touched[0].find(sampler.candidate(c));
    }
    place_of_ = feed_.send(ctx, places);
  }
  return candidates;
}

template <class T>
View<const std::int32_t, 1> StepInputs<T>::negative_places(const Context& ctx,
                                                           const StepInFlight<T>& step,
                                                           std::size_t index,
                                                           const BatchInputs<T>& inputs) {
  const std::int64_t drawn = step.num_negatives[index];
  if (!step.all_candidates) {
    const View<const std::int64_t, 1> all =
        step.negative_ids[index].template view<std::int64_t, 1>();
    const View<std::int32_t, 1> places = feed_.take<std::int32_t>(drawn);
    step.touched[0].places_of(ctx.host(), {all.data, {drawn}}, places);
    const View<const std::int32_t, 1> sent = feed_.send(ctx, places);
    feed_.flush(ctx);
    return sent;
  }
  const Batch& batch = step.batches[index];
  // With tokens before the history the model's keys are of those, too.
  const View<const std::uint64_t, 1> keys = options_.features.num_prefix() == 0
                                                ? inputs.model.row_keys
                                                : feed_.put(ctx, data::view_of(batch.row_keys));
  feed_.flush(ctx);
  const View<std::int32_t, 1> places = feed_.make<std::int32_t>(drawn);
  ops::draw_places(ctx, {options_.seed, static_cast<std::uint64_t>(step.step)}, keys, place_of_,
                   {places.data, {batch.num_tokens(), options_.negatives.count}});
  return places;
}

template <class T>
BatchInputs<T> StepInputs<T>::batch(const Context& ctx, const StepInFlight<T>& step,
                                    std::size_t index, double weight,
                                    const ops::SampledSoftmaxInputs<T>& candidates) {
  const Context& host = ctx.host();
  const Batch& batch = step.batches[index];
  const embedding::TouchedRows& touched = step.touched[0];
  const std::int64_t n = batch.num_tokens();
  BatchInputs<T> inputs;
  inputs.index = index;
  inputs.model = eval::model_input(ctx, batch, options_.features.num_prefix(), /*training=*/true,
                                   options_.seed, step.step, marks_, feed_);
  if (options_.features.num_prefix() > 0) add_prefix(ctx, batch, inputs);
  if (options_.parts.targets > 0) {
    const View<std::int64_t, 1> predicting = feed_.take<std::int64_t>(marks_.predicting());
    marks_.list(batch.offsets_view(), predicting);
    inputs.predicting = feed_.send(ctx, predicting);
    const View<float, 1> weights = feed_.take<float>(n);
    marks_.weigh(batch.offsets_view(), static_cast<float>(weight), weights);
    inputs.weights = feed_.send(ctx, weights);
  }

  const View<std::int32_t, 1> positive = feed_.take<std::int32_t>(n);
  touched.places_of(host, data::view_of(batch.targets), positive);
  inputs.candidates = candidates;
  inputs.candidates.positive = feed_.send(ctx, positive);
  if (options_.negatives.sharing != ops::NegativeSharing::kNone) {
    const View<std::int32_t, 1> order = feed_.take<std::int32_t>(n);
    token_order_.shuffle({options_.seed, static_cast<std::uint64_t>(step.step)},
                         data::view_of(batch.row_keys), order);
    inputs.candidates.order = feed_.send(ctx, order);
  }

  // The inputs' gradients join those of the candidates, duplicates in order.
  const View<std::int64_t, 1> input_places = feed_.take<std::int64_t>(n);
  touched.places_of(host, data::view_of(batch.items), input_places);
  const ops::DedupOutput groups = {feed_.take<std::int64_t>(n), feed_.take<std::int64_t>(n + 1),
                                   feed_.take<std::int32_t>(n), feed_.take<std::int32_t>(n)};
  const std::int64_t unique = ops::dedup_ids(host, input_places, groups);
  inputs.places = feed_.send(ctx, input_places);
  inputs.groups = {feed_.send(ctx, View<std::int64_t, 1>{groups.unique.data, {unique}}),
                   feed_.send(ctx, View<std::int64_t, 1>{groups.offsets.data, {unique + 1}}),
                   feed_.send(ctx, groups.positions)};

  const View<const std::int32_t, 1> negatives = negative_places(ctx, step, index, inputs);
  if (options_.negatives.shared) {
    inputs.candidates.shared_negatives = negatives;
  } else {
    inputs.candidates.negatives = {negatives.data, {n, options_.negatives.count}};
  }
  return inputs;
}

template <class T>
void StepInputs<T>::add_prefix(const Context& ctx, const Batch& batch, BatchInputs<T>& inputs) {
  const std::int64_t prefix = options_.features.num_prefix();
  const std::int64_t tokens = inputs.model.num_tokens, events = batch.num_tokens();
  const View<std::int64_t, 1> slots = feed_.take<std::int64_t>(tokens);
  const View<std::int64_t, 1> back = feed_.take<std::int64_t>(tokens);
  const View<std::int64_t, 1> of_events = feed_.take<std::int64_t>(tokens);
  eval::PrefixOrder::slots_of_tokens(batch.offsets_view(), prefix, slots);
  eval::PrefixOrder::tokens_of_slots(batch.offsets_view(), prefix, back);
  for (std::int64_t i = 0; i < tokens; ++i) of_events(i) = std::min(slots(i), events);
  inputs.slots_of_tokens = feed_.send(ctx, slots);
  inputs.tokens_of_slots = feed_.send(ctx, back);
  inputs.events_of_tokens = feed_.send(ctx, of_events);
}

template <class T>
PlannedBytes StepInputs<T>::bytes() const {
  PlannedBytes bytes = feed_.bytes();
  bytes.host += token_order_.bytes();
  return bytes;
}

template class StepInputs<float>;
template class StepInputs<bf16>;

}  // namespace turbogr::train
