#include "turbogr/train/retrieval_trainer.h"

#include <algorithm>
#include <utility>

#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/convert.h"
#include "turbogr/ops/embedding.h"
#include "turbogr/ops/sampled_softmax.h"
#include "turbogr/train/retrieval_lanes.h"

namespace turbogr::train {
namespace {

using data::Batch;
using model::first_rows;
using model::first_values;

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
  std::vector<bf16*> rounded;
  if constexpr (std::is_same_v<T, bf16>) rounded = model_.rounded_parameters();
  update_rounds_ = !rounded.empty();
  rounded.resize(static_cast<std::size_t>(model_.parameters().size()));
  for (int i = 0; i < model_.parameters().size(); ++i) {
    Tensor& value = model_.parameters().value(i);
    first_moments_.emplace_back(DType::kF32, value.shape(), device);
    second_moments_.emplace_back(DType::kF32, value.shape(), device);
    const bool decays = options.decay_vectors || model_.parameters().spec(i).decay;
    slices.push_back({floats(value), floats(model_.parameters().gradient(i)),
                      floats(first_moments_.back()), floats(second_moments_.back()), value.size(),
                      decays ? 1.0 : 0.0, rounded[static_cast<std::size_t>(i)]});
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

  if (inputs_from_table()) {
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
  ops::zero_gradients(ctx, slices_);
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
  if (!update_rounds_) model_.refresh(ctx);
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

template class RetrievalTrainer<float>;
template class RetrievalTrainer<bf16>;

}  // namespace turbogr::train
