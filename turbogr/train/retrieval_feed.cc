// How a trainer's batch gets to the device: what one step sends, and the inputs of forward passes.
#include "turbogr/model/buffers.h"
#include "turbogr/ops/embedding.h"
#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::train {

using data::Batch;
using model::first_rows;

// What feed() and submit() take for one step.
template <class T>
std::size_t RetrievalTrainer<T>::feed_bytes() const {
  const auto n = static_cast<std::size_t>(options_.memory.capacity);
  const auto negatives = static_cast<std::size_t>(negatives_a_batch(options_));
  // Of a token: item, two times, row key, offset, unique place, group offset; signals, place,
  // position, inverse, place in the ring; its input place.
  // With targets: two counts a sequence, its place among those that predict, its weight.
  const std::size_t marks = options_.parts.targets > 0 ? 3 * 8 + 4 : 0;
  const std::size_t a_batch = (n + 1) * (8 * 8 + 5 * 4 + marks) + negatives * 4 + 21 * 256;
  // Of a touched row: id, correction, and of a table in host memory its place in the next step and
  // its turn in the update.
  const std::size_t later = options_.table_in_host_memory ? 2 * 4 : 0;
  return a_batch * static_cast<std::size_t>(options_.accumulate) +
         static_cast<std::size_t>(touched_capacity(options_, num_items_)) * (8 + 4 + later) +
         4 * 256;
}

template <class T>
model::StepInput RetrievalTrainer<T>::input_of(const Context& ctx, const Batch& batch,
                                               std::int64_t step, bool training) {
  model::StepInput input;
  input.offsets = feed_.put(ctx, batch.offsets_view());
  input.num_tokens = batch.num_tokens();
  input.key_times = feed_.put(ctx, data::view_of(batch.key_times));
  input.query_times = feed_.put(ctx, data::view_of(batch.query_times));
  input.signals = feed_.put(ctx, data::view_of(batch.signals));
  input.row_keys = feed_.put(ctx, data::view_of(batch.row_keys));
  marks_.mark(batch.offsets_view(), training);
  input.num_prefix = feed_.put(ctx, marks_.num_prefix());
  input.num_targets = feed_.put(ctx, marks_.num_targets());
  input.training = training;
  input.seed = options_.seed;
  input.step = static_cast<std::uint64_t>(step);
  return input;
}

template <class T>
typename RetrievalTrainer<T>::Fed RetrievalTrainer<T>::feed(
    const Context& ctx, const Batch& batch, std::size_t index, std::int64_t step, double weight,
    const StepSlot<T>& slot, const ops::SampledSoftmaxInputs<T>& candidates) {
  const Context& host = ctx.host();
  const std::int64_t n = batch.num_tokens();
  Fed fed;
  fed.input = input_of(ctx, batch, step, /*training=*/true);
  if (options_.parts.targets > 0) {
    const View<std::int64_t, 1> predicting = feed_.template take<std::int64_t>(marks_.predicting());
    marks_.list(batch.offsets_view(), predicting);
    fed.predicting = feed_.send(ctx, predicting);
    const View<float, 1> weights = feed_.template take<float>(n);
    marks_.weigh(batch.offsets_view(), static_cast<float>(weight), weights);
    fed.weights = feed_.send(ctx, weights);
  }
  if (inputs_from_table()) fed.items = feed_.put(ctx, data::view_of(batch.items));

  const View<std::int32_t, 1> positive = feed_.template take<std::int32_t>(n);
  slot.touched.places_of(host, data::view_of(batch.targets), positive);
  fed.touched = slot.touched.ids().shape[0];
  fed.candidates = candidates;
  fed.candidates.positive = feed_.send(ctx, positive);
  const std::int64_t drawn = slot.num_negatives[index];
  const View<std::int32_t, 1> places = feed_.template take<std::int32_t>(drawn);
  slot.touched.places_of(
      host, {slot.negative_ids[index].template view<std::int64_t, 1>().data, {drawn}}, places);
  const View<const std::int32_t, 1> negatives = feed_.send(ctx, places);
  if (options_.negatives.shared) {
    fed.candidates.shared_negatives = negatives;
  } else {
    fed.candidates.negatives = {negatives.data, {n, options_.negatives.count}};
  }
  if (options_.negatives.sharing != ops::NegativeSharing::kNone) {
    const View<std::int32_t, 1> order = feed_.template take<std::int32_t>(n);
    token_order_.shuffle({options_.seed, static_cast<std::uint64_t>(step)},
                         data::view_of(batch.row_keys), order);
    fed.candidates.order = feed_.send(ctx, order);
  }

  // The inputs' gradients join those of the candidates, duplicates in order.
  const View<std::int64_t, 1> input_places = feed_.template take<std::int64_t>(n);
  slot.touched.places_of(host, data::view_of(batch.items), input_places);
  const ops::DedupOutput groups = {
      feed_.template take<std::int64_t>(n), feed_.template take<std::int64_t>(n + 1),
      feed_.template take<std::int32_t>(n), feed_.template take<std::int32_t>(n)};
  const std::int64_t unique = ops::dedup_ids(host, input_places, groups);
  if (!inputs_from_table()) fed.places = feed_.send(ctx, input_places);
  fed.groups = {feed_.send(ctx, View<std::int64_t, 1>{groups.unique.data, {unique}}),
                feed_.send(ctx, View<std::int64_t, 1>{groups.offsets.data, {unique + 1}}),
                feed_.send(ctx, groups.positions)};
  return fed;
}

template <class T>
void RetrievalTrainer<T>::last_vectors(const Context& ctx, const Batch& batch, Rows<T> out) {
  const std::int64_t n = batch.num_tokens();
  TGR_CHECK(n <= options_.memory.capacity, "an evaluation batch of ", n, " tokens where ",
            options_.memory.capacity, " were planned for; ask for fewer users at once");
  feed_.begin();
  const model::StepInput input = input_of(ctx, batch, steps_done_, /*training=*/false);
  const View<std::int64_t, 1> last = feed_.template take<std::int64_t>(batch.num_sequences());
  for (std::int64_t b = 0; b < last.shape[0]; ++b) {
    last(b) = batch.offsets[static_cast<std::size_t>(b) + 1] - 1;
  }
  const View<const std::int64_t, 1> last_rows = feed_.send(ctx, last);
  const View<const std::int64_t, 1> items = feed_.put(ctx, data::view_of(batch.items));
  feed_.end(ctx);
  const Rows<T> rows = first_rows<T>(rows_, n);
  ops::gather_rows<float, T>(ctx, table_.weights(), items, rows);
  ops::gather_rows<T>(ctx, model_.forward(ctx, input, rows), last_rows, out);
}

template class RetrievalTrainer<float>;
template class RetrievalTrainer<bf16>;

}  // namespace turbogr::train
