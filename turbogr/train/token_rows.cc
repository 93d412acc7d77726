#include "turbogr/train/token_rows.h"

#include <algorithm>

#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/dense/row_arithmetic.h"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::train {

using model::first_rows;

template <class T>
TokenRows<T>::TokenRows(const Context& ctx, const RetrievalOptions& options, std::int64_t num_items)
    : width_(options.model.width),
      prefix_(options.features.num_prefix()),
      items_(options.features.encodes_items()) {
  const Device device = ctx.device();
  const std::int64_t events = options.memory.capacity;
  const std::int64_t tokens = model_memory(options).capacity;
  rows_ = Tensor(dtype_of<T>(), {tokens, width_}, device);
  dquery_ = Tensor(dtype_of<T>(), {events + (prefix_ > 0 ? 1 : 0), width_}, device);
  if (options.features.empty()) return;
  if (prefix_ > 0) events_ = Tensor(dtype_of<T>(), {tokens, width_}, device);
  const std::int64_t items = feature_size(options, num_items).most_items;
  slots_ = Tensor(dtype_of<T>(), {items + options.accumulate * tokens, width_}, device);
}

template <class T>
Rows<T> TokenRows<T>::slots(std::int64_t first, std::int64_t count) {
  return {slots_.view<T, 2>().data + first * width_, count, width_, width_};
}

template <class T>
Rows<T> TokenRows<T>::batch_slots(const StepInFlight<T>& step, const BatchInputs<T>& inputs,
                                  std::int64_t count) {
  return slots(step.feature_rows->first_slot(eval::FeatureInputs::events_list(inputs.index)),
               count);
}

template <class T>
void TokenRows<T>::begin(const Context& ctx, StepInFlight<T>& step) {
  if (!step.feature_rows) return;
  const model::FeatureRows& features = *step.feature_rows;
  features.pool<T>(ctx, step.features(), slots(0, features.num_slots()));
  if (items_) {
    const Rows<T> items = step.item_rows().rows;
    ops::add_rows<T>(ctx, slots(0, items.rows), items);
  }
}

template <class T>
Rows<T> TokenRows<T>::make(const Context& ctx, const StepInFlight<T>& step,
                           const BatchInputs<T>& inputs) {
  const std::int64_t events = inputs.places.shape[0];
  const Rows<T> rows = first_rows<T>(rows_, events);
  ops::gather_rows<T>(ctx, inputs.candidates.items, inputs.places, rows);
  if (!step.feature_rows) return rows;
  const std::int64_t tokens = inputs.model.num_tokens;
  const Rows<T> own = batch_slots(step, inputs, tokens);  // events, then the prefix
  if (prefix_ == 0) {
    ops::add_rows<T>(ctx, own, rows);
    return rows;
  }
  ops::add_rows<T>(ctx, rows, {own.data, events, width_, width_});
  const Rows<T> all = first_rows<T>(rows_, tokens);
  ops::gather_rows<T>(ctx, own, inputs.slots_of_tokens, all);
  return all;
}

template <class T>
Rows<const T> TokenRows<T>::queries(const Context& ctx, const BatchInputs<T>& inputs,
                                    Rows<const T> out) {
  if (prefix_ == 0) return out;
  const std::int64_t events = inputs.places.shape[0];
  const Rows<T> rows = first_rows<T>(events_, events);
  ops::gather_rows<T>(ctx, out, {inputs.tokens_of_slots.data, {events}}, rows);
  return rows;
}

template <class T>
Rows<const T> TokenRows<T>::spread(const Context& ctx, const BatchInputs<T>& inputs) {
  const std::int64_t events = inputs.places.shape[0];
  const Rows<T> own = dqueries(events);
  if (prefix_ == 0) return own;
  zero_bytes(ctx, own.row(events), static_cast<std::size_t>(width_) * sizeof(T));
  const Rows<T> dout = first_rows<T>(events_, inputs.model.num_tokens);
  ops::gather_rows<T>(ctx, dqueries(events + 1), inputs.events_of_tokens, dout);
  return dout;
}

template <class T>
void TokenRows<T>::take_gradients(const Context& ctx, const StepInFlight<T>& step,
                                  const BatchInputs<T>& inputs, Rows<const T> dx) {
  Rows<const T> events = dx;
  if (step.feature_rows) {
    const Rows<T> own = batch_slots(step, inputs, dx.rows);
    if (prefix_ > 0) {
      ops::gather_rows<T>(ctx, dx, inputs.tokens_of_slots, own);
    } else {
      copy_bytes(ctx, own.data, dx.data, static_cast<std::size_t>(dx.rows * width_) * sizeof(T));
    }
    events = {own.data, inputs.places.shape[0], width_, width_};
  }
  ops::scatter_add_rows<T>(ctx, events, inputs.groups, step.item_gradient());
}

template <class T>
void TokenRows<T>::end(const Context& ctx, const StepInFlight<T>& step) {
  if (!step.feature_rows) return;
  const model::FeatureRows& features = *step.feature_rows;
  const Rows<const float> items = step.item_gradient();
  if (items_) {
    const std::int64_t count = items.rows * width_;
    ops::convert_values<T, float>(ctx, {items.data, {count}}, {slots(0, items.rows).data, {count}});
  }
  features.sum_gradients<T>(ctx, slots(0, features.num_slots()), step.feature_gradient());
}

template <class T>
PlannedBytes TokenRows<T>::bytes() const {
  PlannedBytes bytes;
  for (const Tensor* tensor : {&rows_, &dquery_, &events_, &slots_}) bytes.add(*tensor);
  return bytes;
}

template class TokenRows<float>;
template class TokenRows<bf16>;

}  // namespace turbogr::train
