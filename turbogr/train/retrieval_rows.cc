// The item rows of a trainer's step: which they are, how they come, how the last update goes.
#include <utility>

#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/embedding.h"
#include "turbogr/ops/half_rows.h"
#include "turbogr/train/retrieval_lanes.h"
#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::train {

using data::Batch;
using model::first_rows;
using model::first_values;

// All batches of an update share one set of touched rows, so that their gradients meet there.
template <class T>
void RetrievalTrainer<T>::draw(const Context& host, std::span<const Batch> batches,
                               std::int64_t step, StepSlot<T>& slot,
                               const std::optional<Positives>& positives) {
  sampler_.begin_step({options_.seed, static_cast<std::uint64_t>(step)});
  if (positives) {
    sampler_.add_positives(positives->distinct, positives->count);
  } else {
    for (const Batch& batch : batches) sampler_.add_positives(data::view_of(batch.targets));
  }
  sampler_.finish_positives();
  slot.touched.clear();
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const View<std::int64_t, 1> all = slot.negative_ids[b].template view<std::int64_t, 1>();
    if (options_.negatives.shared) {
      slot.num_negatives[b] = sampler_.draw_shared(host, static_cast<std::int64_t>(b), all);
    } else {
      const std::int64_t tokens = batches[b].num_tokens();
      slot.num_negatives[b] = tokens * options_.negatives.count;
      sampler_.draw_own(host, data::view_of(batches[b].row_keys),
                        {all.data, {tokens, options_.negatives.count}});
    }
    slot.touched.mark(host, {all.data, {slot.num_negatives[b]}});
    slot.touched.mark(host, data::view_of(batches[b].items));
    if (options_.negatives.half) {
      slot.touched.mark_first(host, data::view_of(batches[b].targets));
    } else {
      slot.touched.mark(host, data::view_of(batches[b].targets));
    }
  }
  slot.touched.number(host);
  if (sampler_.corrects()) {
    const View<const std::int64_t, 1> ids = slot.touched.ids();
    sampler_.corrections(host, ids, first_values<float>(slot.corrections, ids.shape[0]));
  }
}

// The step's rows from the table here: in T, or in f16 those that are negatives only.
template <class T>
void RetrievalTrainer<T>::gather_rows(const Context& ctx, View<const std::int64_t, 1> ids,
                                      StepSlot<T>& slot) {
  const bool half = options_.negatives.half;
  const std::int64_t full = half ? slot.touched.num_first() : ids.shape[0];
  ops::gather_rows<float, T>(ctx, table_.weights(), {ids.data, {full}},
                             first_rows<T>(slot.compact, full));
  if (!half) return;
  const ops::HalfRowsOut rows = {first_rows<f16>(slot.half_rows, ids.shape[0]),
                                 first_values<float>(slot.half_scale, ids.shape[0])};
  if (half_table_.empty()) {
    ops::gather_half_rows(ctx, table_.weights(), ids, rows);
  } else {
    ops::gather_half_rows(ctx, half_table_.rows(), ids, rows);
  }
}

// The same from a table in host memory: most are there already or on their way, and the last step's
// update brings those that it changes.
template <class T>
void RetrievalTrainer<T>::bring_rows(const Context& ctx, std::span<const Batch> batches) {
  const Rows<T> rows = first_rows<T>(slot_->compact, slot_->touched.ids().shape[0]);
  prefetch_->fetch(ctx, table_.weights(), slot_->touched, rows);
  if (deferred_.ctx != nullptr) {
    const std::int64_t count = deferred_.ids.shape[0];
    const View<std::int32_t, 1> places = feed_.template take<std::int32_t>(count);
    const View<std::int32_t, 1> which = feed_.template take<std::int32_t>(count);
    const std::int64_t soon = prefetch_->divide(ctx, slot_->touched, batches, places, which);
    const ops::RowCopies<T> copies = {feed_.send(ctx, places), rows};
    const View<const std::int32_t, 1> sent = feed_.send(ctx, which);
    const auto update_part = [&](const Context& stream, const ops::RowPart& part, int lane) {
      const DeviceSpans::Span span =
          prefetch_->spans().begin(stream, "update rows over the link", lane);
      table_.update(stream, deferred_.ids, first_rows<float>(std::as_const(slot_->gradient), count),
                    deferred_.settings, reinterpret_cast<const ops::StepScale*>(scale_.data()),
                    copies, part);
      prefetch_->spans().end(stream, span);
    };
    update_part(ctx, {{sent.data, {soon}}}, kDeviceLane);
    update_part(prefetch_->beside(ctx), {{sent.data + soon, {count - soon}}, /*narrow=*/true},
                kBesideLane);
    prefetch_->updated();
    deferred_ = {};
  }
  prefetch_->arrive(ctx);
}

// Without a next step to wait for.
template <class T>
void RetrievalTrainer<T>::flush_update() {
  spans_.collect();
  if (prefetch_ != nullptr) prefetch_->spans().collect();
  if (deferred_.ctx == nullptr) return;
  const Context& ctx = *deferred_.ctx;
  table_.update(ctx, deferred_.ids,
                first_rows<float>(std::as_const(slot_->gradient), deferred_.ids.shape[0]),
                deferred_.settings, reinterpret_cast<const ops::StepScale*>(scale_.data()));
  synchronize(ctx);
  deferred_ = {};
  slot_->touched.clear();  // the next step's rows all come from the table
}

// The rows of the items that compete in this step, and what their logits are corrected by.
template <class T>
ops::SampledSoftmaxInputs<T> RetrievalTrainer<T>::candidates_of(const Context& ctx,
                                                                const StepSlot<T>& slot) {
  ops::SampledSoftmaxInputs<T> candidates;
  const std::int64_t touched = slot.touched.ids().shape[0];
  const bool half = options_.negatives.half;
  candidates.items = first_rows<T>(slot.compact, half ? slot.touched.num_first() : touched);
  if (half) {
    candidates.negative_items = {first_rows<f16>(slot.half_rows, touched),
                                 first_values<float>(slot.half_scale, touched)};
  }
  if (sampler_.corrects()) {
    candidates.correction = feed_.put(ctx, first_values<float>(slot.corrections, touched));
  }
  return candidates;
}

template class RetrievalTrainer<float>;
template class RetrievalTrainer<bf16>;

}  // namespace turbogr::train
