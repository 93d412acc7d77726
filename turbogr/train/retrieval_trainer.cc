#include "turbogr/train/retrieval_trainer.h"

#include <algorithm>
#include <utility>

#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/convert.h"
#include "turbogr/ops/embedding.h"
#include "turbogr/ops/half_rows.h"
#include "turbogr/ops/sampled_softmax.h"

namespace turbogr::train {
namespace {

using data::Batch;
using model::first_rows;
using model::first_values;

// Rows of a trace; the lanes between are of row_prefetch.cc.
constexpr int kDeviceLane = 0;
constexpr int kDrawLane = 3;
constexpr int kBesideLane = 4;

float* floats(Tensor& tensor) { return reinterpret_cast<float*>(tensor.data()); }

// The softmax's options are the same forward and backward.
ops::SoftmaxOptions softmax_options(const RetrievalOptions& options) {
  return {.temperature = options.temperature,
          .normalize = true,
          .sharing = options.negatives.sharing,
          .sharing_factor = options.negatives.sharing_factor};
}

}  // namespace

Device table_device(const Context& ctx, const RetrievalOptions& options) {
  return ctx.device() == Device::kCuda && options.table_in_host_memory ? Device::kPinned
                                                                       : ctx.device();
}

template <class T>
RetrievalTrainer<T>::RetrievalTrainer(const Context& ctx, const RetrievalOptions& options,
                                      std::int64_t num_items, std::span<const std::int64_t> counts)
    : options_(options),
      model_(ctx, options.model, options.memory),
      table_(options.holds_table ? num_items : 0, options.model.width, options.table_optimiser,
             table_device(ctx, options)),
      num_items_(num_items),
      marks_(options.parts),
      sampler_(options.negatives, num_items, counts),
      slot_(options.holds_table ? std::make_unique<StepSlot<T>>(ctx, options, num_items) : nullptr),
      feed_(ctx, feed_bytes()),
      spans_(ctx),
      queue_length_(ctx.device() == Device::kCuda ? 2 : 1) {
  const Device device = ctx.device();
  const std::int64_t n = options.memory.capacity;
  const std::int64_t width = options.model.width;
  const NegativeOptions& negatives = options.negatives;
  std::vector<ops::UpdateSlice> slices;
  for (int i = 0; i < model_.parameters().size(); ++i) {
    Tensor& value = model_.parameters().value(i);
    first_moments_.emplace_back(DType::kF32, value.shape(), device);
    second_moments_.emplace_back(DType::kF32, value.shape(), device);
    const bool decays = options.decay_vectors || model_.parameters().spec(i).decay;
    slices.push_back({floats(value), floats(model_.parameters().gradient(i)),
                      floats(first_moments_.back()), floats(second_moments_.back()), value.size(),
                      decays ? 1.0 : 0.0});
  }
  slices_ = ops::UpdateSlices(ctx, std::move(slices));
  sampler_.reserve_positives(options.accumulate * n);
  if (negatives.sharing != ops::NegativeSharing::kNone) token_order_.reserve(n);
  rows_ = Tensor(dtype_of<T>(), {n, width}, device);
  if (negatives.half_table) {
    half_table_ = embedding::HalfTable(num_items, width, table_device(ctx, options));
  }
  dquery_ = Tensor(dtype_of<T>(), {n, width}, device);
  loss_ = Tensor(DType::kF32, {n}, device);
  log_sum_exp_ = Tensor(DType::kF32, {n}, device);
  dloss_ = Tensor(DType::kF32, {n}, device);
  squares_ = Tensor(DType::kF64, {2}, device);
  loss_sums_ = Tensor(DType::kF64, {options.accumulate}, device);
  scale_ = Tensor(DType::kF64, {4}, device);
  results_ = Tensor(DType::kF64, {queue_length_, 4},
                    device == Device::kCuda ? Device::kPinned : Device::kCpu);
  for (std::int64_t i = 0; i < queue_length_; ++i) {
    result_events_.push_back(std::make_unique<Event>(ctx));
  }

  if (options.holds_table && table_device(ctx, options) == Device::kPinned && !negatives.half) {
    prefetch_ = std::make_unique<RowPrefetch<T>>(ctx, num_items, width);
  }
  if (device == Device::kCuda && ctx.trace() != nullptr) {
    ctx.trace()->name_lane(kDeviceLane, "device");
    ctx.trace()->name_lane(kDrawLane, "host: draws");
    if (prefetch_) ctx.trace()->name_lane(kBesideLane, "device: beside the forward pass");
  }

  const std::int64_t own = negatives.shared ? 0 : negatives.count;
  const std::int64_t touched = touched_capacity(options, num_items);
  ctx.workspace().reserve(std::max(
      {ops::softmax_workspace_bytes(ctx, n, touched, width, own, softmax_options(options)),
       ops::sum_values_workspace_bytes(ctx, n), ops::squared_sum_workspace_bytes(ctx, slices_),
       ops::squared_sum_workspace_bytes(ctx, touched * width)}));
  ctx.host().workspace().reserve(ops::dedup_ids_workspace_bytes(n));
}

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
void RetrievalTrainer<T>::initialise(const Context& ctx) {
  model_.initialise(ctx, options_.seed);
  table_.initialise(ctx, options_.seed, options_.table_scale);
  refresh(ctx);
}

template <class T>
void RetrievalTrainer<T>::refresh(const Context& ctx) {
  model_.refresh(ctx);
  if (!half_table_.empty()) half_table_.assign(ctx, table_.weights());
  if (prefetch_ != nullptr) synchronize(ctx);  // the host reads the table
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
  if (options_.holds_table && prefetch_ == nullptr) {
    fed.items = feed_.put(ctx, data::view_of(batch.items));
  }

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
  if (!options_.holds_table || prefetch_ != nullptr) fed.places = feed_.send(ctx, input_places);
  fed.groups = {feed_.send(ctx, View<std::int64_t, 1>{groups.unique.data, {unique}}),
                feed_.send(ctx, View<std::int64_t, 1>{groups.offsets.data, {unique + 1}}),
                feed_.send(ctx, groups.positions)};
  return fed;
}

template <class T>
void RetrievalTrainer<T>::zero_gradient(const Context& ctx, StepSlot<T>& slot) {
  const std::int64_t elements = slot.touched.ids().shape[0] * slot.gradient.shape()[1];
  zero_bytes(ctx, slot.gradient.data(), static_cast<std::size_t>(elements) * sizeof(float));
}

// Adds the batch's gradients, each token's loss weighed by `weight`; *loss_sum becomes the sum of
// the losses.
template <class T>
void RetrievalTrainer<T>::forward_backward(const Context& ctx, const Fed& fed, double weight,
                                           StepSlot<T>& slot, double* loss_sum,
                                           const LayersReady& ready) {
  const std::int64_t n = fed.input.num_tokens;
  const Rows<T> rows = first_rows<T>(rows_, n);
  const Rows<T> dquery = first_rows<T>(dquery_, n);

  if (options_.holds_table && prefetch_ == nullptr) {
    ops::gather_rows<float, T>(ctx, table_.weights(), fed.items, rows);
  } else {
    ops::gather_rows<T>(ctx, fed.candidates.items, fed.places, rows);
  }
  ops::SampledSoftmaxInputs<T> candidates = fed.candidates;
  candidates.query = model_.forward(ctx, fed.input, rows);

  const View<float, 1> loss = first_values<float>(loss_, n);
  const View<float, 1> log_sum_exp = first_values<float>(log_sum_exp_, n);
  View<const float, 1> dloss = fed.weights;
  if (fed.weights.empty()) {
    const View<float, 1> even = first_values<float>(dloss_, n);
    ops::fill<float>(ctx, static_cast<float>(weight), even);
    dloss = even;
  }
  const Rows<float> ditems = first_rows<float>(slot.gradient, fed.touched);
  if (prefetch_ != nullptr && fed.first) {
    prefetch_->await_update(ctx);
    zero_gradient(ctx, slot);
  }
  ops::sampled_softmax_with_gradients<T>(ctx, candidates, softmax_options(options_), dloss,
                                         {loss, log_sum_exp}, dquery, ditems);
  if (prefetch_ != nullptr) prefetch_->release(ctx);
  if (fed.weights.empty()) {
    ops::sum_values<float>(ctx, loss, loss_sum);
  } else {
    const std::int64_t count = fed.predicting.shape[0];
    const View<float, 1> counted = first_values<float>(dloss_, count);
    ops::gather_rows<float>(ctx, View<const float, 2>{loss.data, {n, 1}}, fed.predicting,
                            View<float, 2>{counted.data, {count, 1}});
    ops::sum_values<float>(ctx, counted, loss_sum);
  }
  model_.backward(ctx, fed.input, dquery, rows, ready);
  ops::scatter_add_rows<T>(ctx, rows, fed.groups, ditems);
}

template <class T>
void RetrievalTrainer<T>::compute(const Context& ctx, std::span<const Batch> batches,
                                  std::int64_t step, double weight, StepSlot<T>& slot,
                                  const LayersReady& ready) {
  feed_.begin();
  compute_batches(ctx, batches, step, weight, slot, ready);
  feed_.end(ctx);
}

template <class T>
void RetrievalTrainer<T>::compute_batches(const Context& ctx, std::span<const Batch> batches,
                                          std::int64_t step, double weight, StepSlot<T>& slot,
                                          const LayersReady& ready) {
  const ops::SampledSoftmaxInputs<T> candidates = candidates_of(ctx, slot);
  // A table in host memory may still read the last step's.
  if (prefetch_ == nullptr) zero_gradient(ctx, slot);
  model_.parameters().zero_gradients(ctx);
  bool first = true;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    double* loss_sum = loss_sums_.template view<double, 1>().data + b;
    if (batches[b].num_tokens() == 0) {  // a rank without a share of the last batch
      zero_bytes(ctx, loss_sum, sizeof(double));
      continue;
    }
    Fed fed = feed(ctx, batches[b], b, step, weight, slot, candidates);
    fed.first = std::exchange(first, false);
    forward_backward(ctx, fed, weight, slot, loss_sum,
                     b + 1 == batches.size() ? ready : LayersReady());
  }
}

template <class T>
double RetrievalTrainer<T>::update_dense(const Context& ctx, std::int64_t step,
                                         const ops::StepScale* scale) {
  AdamWSettings dense = options_.dense;
  dense.rate *= options_.schedule.factor(step);
  dense.step = static_cast<double>(step + 1);
  ops::adamw(ctx, slices_, dense, scale);
  model_.refresh(ctx);
  return dense.rate;
}

template <class T>
AdamWSettings RetrievalTrainer<T>::table_settings(std::int64_t step) const {
  AdamWSettings sparse = options_.table;
  sparse.rate *= options_.schedule.factor(step);
  sparse.step = static_cast<double>(step + 1);
  return sparse;
}

// Returns the learning rate. A loss or gradient that is not finite changes nothing.
template <class T>
double RetrievalTrainer<T>::update(const Context& ctx, View<const std::int64_t, 1> ids,
                                   std::int64_t batches, double weight) {
  const Rows<const float> gradient =
      first_rows<float>(std::as_const(slot_->gradient), ids.shape[0]);
  double* squares = squares_.template view<double, 1>().data;
  auto* scale = reinterpret_cast<ops::StepScale*>(scale_.data());
  ops::squared_sum(ctx, slices_, squares);
  ops::squared_sum(ctx, {gradient.data, {gradient.rows * gradient.cols}}, squares + 1);
  ops::make_step_scale(ctx, {squares, {2}}, {loss_sums_.template view<double, 1>().data, {batches}},
                       {.clip = options_.clip, .loss_weight = weight}, scale);

  if (prefetch_ != nullptr) {
    deferred_ = {&ctx, ids, table_settings(steps_done_)};
    rows_updated_ += static_cast<double>(ids.shape[0]);
  } else {
    table_.update(ctx, ids, gradient, table_settings(steps_done_), scale);
  }
  if (!half_table_.empty()) half_table_.refresh(ctx, table_.weights(), ids);
  return update_dense(ctx, steps_done_, scale);
}

template <class T>
void RetrievalTrainer<T>::submit(const Context& ctx, std::span<const Batch> batches) {
  TGR_CHECK(!batches.empty() && static_cast<std::int64_t>(batches.size()) <= options_.accumulate,
            "a step of ", batches.size(), " batches; planned for 1 to ", options_.accumulate);
  TGR_CHECK(pending() < queue_length_, "a step was submitted while ", pending(),
            " are on their way; finish one first");
  Pending step;
  for (const Batch& batch : batches) {
    TGR_CHECK(batch.num_tokens() <= options_.memory.capacity, "a batch of ", batch.num_tokens(),
              " tokens where ", options_.memory.capacity,
              " were planned for; raise train.tokens or lower train.batch");
    step.result.tokens += batch.num_tokens();
    marks_.mark(batch.offsets_view(), /*training=*/true);
    step.result.predicting += marks_.predicting();
  }
  TGR_CHECK(step.result.tokens > 0, "a step without tokens; the batch is empty");

  feed_.begin();
  if (prefetch_ != nullptr) std::swap(slot_->touched, prefetch_->previous());
  {
    const TraceScope scope(ctx.device() == Device::kCuda ? ctx.trace() : nullptr, "draw negatives",
                           kDrawLane);
    draw(ctx.host(), batches, steps_done_, *slot_);
  }
  const View<const std::int64_t, 1> ids = feed_.put(ctx, slot_->touched.ids());
  if (prefetch_ != nullptr) {
    bring_rows(ctx, batches);
  } else {
    gather_rows(ctx, ids, *slot_);
  }
  const DeviceSpans::Span span = spans_.begin(ctx, "step", kDeviceLane);
  const double weight = 1.0 / static_cast<double>(step.result.predicting);
  compute_batches(ctx, batches, steps_done_, weight, *slot_, {});
  feed_.end(ctx);
  step.result.rate = update(ctx, ids, static_cast<std::int64_t>(batches.size()), weight);

  spans_.end(ctx, span);

  step.slot = static_cast<std::size_t>(steps_done_ % queue_length_);
  copy_bytes(ctx, results_.data() + step.slot * sizeof(ops::StepScale), scale_.data(),
             sizeof(ops::StepScale));
  result_events_[step.slot]->record(ctx);
  step.result.step = ++steps_done_;
  pending_.push_back(step);
}

template <class T>
StepResult RetrievalTrainer<T>::finish() {
  TGR_CHECK(!pending_.empty(), "no step was submitted; there is nothing to finish");
  const Pending step = pending_.front();
  try {
    result_events_[step.slot]->wait();
  } catch (const Error& error) {
    detail::throw_error("step ", step.result.step,
                        " or one queued behind it failed on the GPU: ", error.what(),
                        "; run with CUDA_LAUNCH_BLOCKING=1 to see which operator");
  }
  pending_.pop_front();
  if (pending_.empty()) flush_update();
  const auto& scale = reinterpret_cast<const ops::StepScale*>(results_.data())[step.slot];
  StepResult result = step.result;
  result.loss = scale.loss;
  result.gradient_norm = scale.norm;
  result.finite = scale.finite != 0;
  if (!result.finite) result.rate = 0;
  return result;
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
