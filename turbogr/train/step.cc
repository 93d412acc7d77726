#include "turbogr/train/step.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <type_traits>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"
#include "turbogr/model/weight_bytes.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/softmax/sampled_softmax.h"
#include "turbogr/train/dense_tensors.h"
#include "turbogr/train/gradient_blocks.h"
#include "turbogr/train/make_rows.h"
#include "turbogr/train/step_parts.h"

namespace turbogr::train {
namespace {

using data::Batch;
using model::first_rows;
using model::first_values;

}  // namespace

template <class T>
void RetrievalStep<T>::begin(Flight& step, Input batches, bool keep) {
  TGR_CHECK(!batches.empty() && std::ssize(batches) <= options_.accumulate, "a step of ",
            batches.size(), " batches; planned for 1 to ", options_.accumulate);
  step.tokens = step.predicting = 0;
  for (const Batch& batch : batches) {
    TGR_CHECK(batch.num_tokens() <= options_.memory.capacity, "a batch of ", batch.num_tokens(),
              " tokens where ", options_.memory.capacity,
              " were planned for; raise train.tokens or lower train.batch");
    step.tokens += batch.num_tokens();
    step.predicting += inputs_.predicting(batch);
  }
  step.batches = batches;
  if (!keep) return;
  step.kept.resize(std::max(step.kept.size(), batches.size()));
  std::copy(batches.begin(), batches.end(), step.kept.begin());
  step.batches = std::span<const Batch>(step.kept).first(batches.size());
}

// Negatives of the step and the ids it touches, all batches' together, so that their gradients
// meet.
template <class T>
void RetrievalStep<T>::draw(const Context& host, StepInFlight<T>& step,
                            const std::optional<Positives>& positives) {
  sampler_.begin_step({options_.seed, static_cast<std::uint64_t>(step.step)});
  if (positives) {
    sampler_.add_positives(positives->distinct, positives->count);
  } else {
    for (const Batch& batch : step.batches) sampler_.add_positives(data::view_of(batch.targets));
  }
  sampler_.finish_positives();
  embedding::TouchedRows& touched = step.touched[0];
  touched.clear();
  step.all_candidates = sampler_.draws_all(step.tokens * options_.negatives.count);
  if (step.all_candidates) {
    sampler_.known().empty() ? touched.mark_all() : touched.mark(host, sampler_.known());
  }
  for (std::size_t b = 0; b < step.batches.size(); ++b) {
    const Batch& batch = step.batches[b];
    const View<std::int64_t, 1> all = step.negative_ids[b].template view<std::int64_t, 1>();
    if (options_.negatives.shared) {
      step.num_negatives[b] = sampler_.draw_shared(host, static_cast<std::int64_t>(b), all);
    } else {
      const std::int64_t tokens = batch.num_tokens();
      step.num_negatives[b] = tokens * options_.negatives.count;
      if (!step.all_candidates) {
        sampler_.draw_own(host, data::view_of(batch.row_keys),
                          {all.data, {tokens, options_.negatives.count}});
      }
    }
    if (!step.all_candidates) touched.mark(host, {all.data, {step.num_negatives[b]}});
    // Beside f16 negatives, those first that are read in full precision.
    for (const View<const std::int64_t, 1>& ids :
         {data::view_of(batch.items), data::view_of(batch.targets)}) {
      options_.negatives.half ? touched.mark_first(host, ids) : touched.mark(host, ids);
    }
  }
  touched.number(host);
  if (sampler_.corrects()) {
    const View<const std::int64_t, 1> ids = touched.ids();
    sampler_.corrections(host, ids, first_values<float>(step.corrections, ids.shape[0]));
  }
}

// What the step's items, events and sequences read of the features' tables.
template <class T>
void RetrievalStep<T>::find_features(const Context& ctx, StepInFlight<T>& step) {
  if (!step.feature_rows) return;
  step.feature_inputs->clear();
  step.feature_inputs->set_items(step.touched[0].ids());
  for (const Batch& batch : step.batches) step.feature_inputs->add_batch(batch);
  step.feature_rows->read(ctx, step.feature_inputs->places());
  TGR_CHECK(step.feature_rows->out_of_range() == 0, step.feature_rows->out_of_range(),
            " codes of features are outside of their tables; the store is damaged, run `turbogr "
            "data verify`");
  touch_features(ctx.host(), *step.feature_rows, std::span(step.touched).subspan(1));
}

// The distinct positives of all ranks, which in-batch negatives are drawn from, and how many there
// were.
template <class T>
typename RetrievalStep<T>::Positives RetrievalStep<T>::gather_positives(Lane lane,
                                                                        StepInFlight<T>& step) {
  std::vector<std::int64_t> own;
  for (const Batch& batch : step.batches) {
    own.insert(own.end(), batch.targets.begin(), batch.targets.end());
  }
  struct Amount {
    std::int64_t distinct, count;
  };
  Amount amount = {0, std::ssize(own)};
  std::sort(own.begin(), own.end());
  own.erase(std::unique(own.begin(), own.end()), own.end());
  amount.distinct = std::ssize(own);
  dist::Communicator& ranks = *hosts_[static_cast<std::size_t>(lane)];
  std::vector<std::int64_t> bytes;
  std::int64_t distinct = 0, count = 0;
  for (const Amount& each : ranks.all_gather_value(amount)) {
    bytes.push_back(each.distinct * static_cast<std::int64_t>(sizeof(std::int64_t)));
    distinct += each.distinct;
    count += each.count;
  }
  step.positives.resize(static_cast<std::size_t>(distinct));
  ranks.all_gather(own.data(), {step.positives.data(), bytes});
  return {{step.positives.data(), {distinct}}, count};
}

template <class T>
void RetrievalStep<T>::prepare(const Context& ctx, Lane lane, StepInFlight<T>& step) {
  std::optional<Positives> positives;
  if (sampler_.needs_positives() && world_.size() > 1) {
    const auto scope = clock_.enter(ctx, stages::kPositives, lane);
    positives = gather_positives(lane, step);
  }
  {
    const auto scope = clock_.enter(ctx, stages::kDraw, lane);
    draw(ctx.host(), step, positives);
    find_features(ctx, step);
  }
  const auto scope = clock_.enter(ctx, stages::kIds, lane);
  std::array<std::int64_t, 3> sums = {step.tokens, step.predicting, step.stop ? 1 : 0};
  hosts_[static_cast<std::size_t>(lane)]->all_reduce({sums.data(), std::ssize(sums)},
                                                     dist::Reduce::kSum);
  TGR_CHECK(sums[0] > 0, "a step without tokens on any rank; the batches are empty");
  step.result = {.step = step.step + 1, .tokens = sums[0], .predicting = sums[1]};
  step.stop = sums[2] > 0;
  step.inputs.clear();
  for (const Batch& batch : step.batches) step.inputs.push_back(data::view_of(batch.items));
  rows_->prepare(ctx, lane,
                 {.step = step.step,
                  .tables = step.touched,
                  .inputs = step.inputs,
                  .predicting = step.predicting,
                  .all_predicting = step.result.predicting},
                 *step.request);
}

template <class T>
void RetrievalStep<T>::fetch(const Context& ctx, Lane lane, StepInFlight<T>& step) {
  const auto scope = clock_.enter(ctx, stages::kFetch, lane);
  rows_->fetch(ctx, lane, *step.request, step.rows());
}

// Gradients of this rank's share, each token's loss weighed so that over all ranks it is the mean;
// dense ones are on their way to be summed over ranks when it returns.
template <class T>
void RetrievalStep<T>::compute(const Context& ctx, StepInFlight<T>& step) {
  const auto scope = clock_.enter(ctx, stages::kCompute, Lane::kThis);
  const double weight = 1.0 / static_cast<double>(step.result.predicting);
  inputs_.begin();
  if (step.rows_late) step.numbers.clear(ctx);
  const ops::SampledSoftmaxInputs<T> candidates = inputs_.candidates(ctx, step, sampler_);
  tokens_.begin(ctx, step);
  ops::zero_gradients(ctx, dense_.slices);
  bool first = true;
  for (std::size_t b = 0; b < step.batches.size(); ++b) {
    double* loss_sum = step.numbers.losses() + b;
    if (step.batches[b].num_tokens() == 0) {  // a rank without a share of the last batch
      zero_bytes(ctx, loss_sum, sizeof(double));
      continue;
    }
    const BatchInputs<T> inputs = inputs_.batch(ctx, step, b, weight, candidates);
    forward_backward(ctx, step, inputs, weight, loss_sum, std::exchange(first, false),
                     b + 1 == step.batches.size());
  }
  if (first) {  // no tokens here: the gradients are zero
    rows_->await_gradients(ctx);
    const Rows<float> gradient = step.gradient();
    zero_bytes(ctx, gradient.data, static_cast<std::size_t>(gradient.rows * gradient.cols) * 4);
    rows_->release_rows(ctx);
  } else {
    tokens_.end(ctx, step);
  }
  inputs_.end(ctx);
}

// Adds the batch's gradients; *loss_sum becomes the sum of its losses.
template <class T>
void RetrievalStep<T>::forward_backward(const Context& ctx, StepInFlight<T>& step,
                                        const BatchInputs<T>& inputs, double weight,
                                        double* loss_sum, bool first, bool last) {
  const std::int64_t n = inputs.places.shape[0];
  const Rows<T> rows = tokens_.make(ctx, step, inputs);
  ops::SampledSoftmaxInputs<T> candidates = inputs.candidates;
  candidates.query = tokens_.queries(ctx, inputs, model_.forward(ctx, inputs.model, rows));

  const View<float, 1> loss = first_values<float>(loss_, n);
  const View<float, 1> log_sum_exp = first_values<float>(log_sum_exp_, n);
  View<const float, 1> dloss = inputs.weights;
  if (inputs.weights.empty()) {
    const View<float, 1> even = first_values<float>(dloss_, n);
    ops::fill<float>(ctx, static_cast<float>(weight), even);
    dloss = even;
  }
  const Rows<float> ditems = step.item_gradient();
  if (first) {
    rows_->await_gradients(ctx);
    zero_bytes(ctx, ditems.data, static_cast<std::size_t>(ditems.rows * ditems.cols) * 4);
  }
  ops::sampled_softmax_with_gradients<T>(ctx, candidates, softmax_options(options_), dloss,
                                         {loss, log_sum_exp}, tokens_.dqueries(n), ditems);
  if (last) rows_->release_rows(ctx);
  if (inputs.weights.empty()) {
    ops::sum_values<float>(ctx, loss, loss_sum);
  } else {
    const std::int64_t count = inputs.predicting.shape[0];
    const View<float, 1> counted = first_values<float>(dloss_, count);
    ops::gather_rows<float>(ctx, View<const float, 2>{loss.data, {n, 1}}, inputs.predicting,
                            View<float, 2>{counted.data, {count, 1}});
    ops::sum_values<float>(ctx, counted, loss_sum);
  }
  const bool as_they_come = last && options_.ranks.schedule != StepSchedule::kSerial;
  const Rows<const T> dout = tokens_.spread(ctx, inputs);
  model_.backward(ctx, inputs.model, dout, rows, [&](std::int64_t layers) {
    if (as_they_come) reducer_->ready(blocks_by_layers_[static_cast<std::size_t>(layers)]);
  });
  tokens_.take_gradients(ctx, step, inputs, rows);
}

template <class T>
void RetrievalStep<T>::return_rows(const Context& ctx, Lane lane, StepInFlight<T>& step,
                                   Part part) {
  const auto scope = clock_.enter(ctx, stages::kReturn, lane);
  double* squares = step.rows_late ? step.numbers.late_squares(part) : step.numbers.row_squares();
  rows_->return_gradients(ctx, lane, *step.request, part, step.gradients(), squares);
  if (step.rows_late) {  // for the record; the scale has been made
    devices_[static_cast<std::size_t>(lane)]->all_reduce({squares, step.numbers.tables()},
                                                         dist::Reduce::kSum);
  }
}

template <class T>
void RetrievalStep<T>::update_dense(const Context& ctx, StepInFlight<T>& step) {
  {
    const auto scope = clock_.enter(ctx, stages::kDenseSums, Lane::kThis);
    sum_step(ctx, *reducer_, *devices_[static_cast<std::size_t>(Lane::kThis)], step,
             step.gradient(), std::ssize(step.batches));
  }
  const auto scope = clock_.enter(ctx, stages::kDenseUpdate, Lane::kThis);
  ops::squared_sum(ctx, dense_.slices, step.numbers.dense_squares());
  ops::StepScaleOptions scale = {.clip = options_.clip,
                                 .loss_weight = 1.0 / static_cast<double>(step.result.predicting)};
  if (step.rows_late) scale.counted = 1;
  ops::make_step_scale(ctx, {step.numbers.dense_squares(), {1 + step.numbers.tables()}},
                       {step.numbers.losses(), {std::ssize(step.batches)}}, scale,
                       step.numbers.scale());
  const AdamWSettings settings = settings_at(options_.dense, options_.schedule, step.step);
  ops::adamw(ctx, dense_.slices, settings, step.numbers.scale());
  if (!update_rounds_) model_.refresh(ctx);
  step.result.rate = settings.rate;
}

template <class T>
void RetrievalStep<T>::update_rows(const Context& ctx, Lane lane, StepInFlight<T>& step,
                                   Part part) {
  const auto scope = clock_.enter(ctx, stages::kRowUpdate, lane);
  // By the lane's own list: two steps may be updated at a time.
  std::vector<AdamWSettings>& settings = row_settings_[static_cast<std::size_t>(lane)];
  std::fill(settings.begin(), settings.end(),
            settings_at(options_.table, options_.schedule, step.step));
  rows_->update(ctx, lane, *step.request, part, settings, step.numbers.scale());
}

template <class T>
void RetrievalStep<T>::finish(const Context& ctx, StepInFlight<T>& step) {
  step.numbers.send(ctx);
  step.done = true;
}

template <class T>
StepResult RetrievalStep<T>::result_of(StepInFlight<T>& step) {
  StepResult result = step.result;
  const StepNumbers::Known known = step.numbers.wait(result.step);
  result.loss = known.scale.loss;
  result.gradient_norm =
      step.rows_late ? std::sqrt(known.dense_squares + known.late_squares) : known.scale.norm;
  result.finite = known.scale.finite != 0;
  if (!result.finite) result.rate = 0;
  return result;
}

// What a step is made of.

namespace {

RowPlan row_plan(const Context& ctx, const RetrievalOptions& options, std::int64_t num_items,
                 std::span<const std::int64_t> counts) {
  return {.tables = all_tables(options, num_items),
          .memory = table_device(ctx, options),
          .ranks = options.ranks,
          .plan_only = options.plan_only,
          .most = touched_capacity(options, num_items),
          .ahead = !options.negatives.half,
          .copies = cached_rows(options, num_items),
          .counts = counts};
}

}  // namespace

template <class T>
RetrievalStep<T>::RetrievalStep(const Context& ctx, const Context& next, dist::Communicator& world,
                                const RetrievalOptions& options, std::int64_t num_items,
                                std::span<const std::int64_t> counts)
    : options_(options),
      num_items_(num_items),
      world_(world),
      model_(ctx, options.model, model_memory(options)),
      rows_(make_rows<T>(ctx, next, world, row_plan(ctx, options_, num_items, counts))),
      sampler_(options.negatives, num_items, counts),
      inputs_(ctx, options, num_items),
      tokens_(ctx, options, num_items),
      clock_(ctx, next, options.ranks.sharded()) {
  const Device device = ctx.device();
  const std::int64_t n = options.memory.capacity;
  const std::int64_t width = options.model.width;
  std::vector<bf16*> rounded;
  if constexpr (std::is_same_v<T, bf16>) rounded = model_.rounded_parameters();
  update_rounds_ = !rounded.empty();
  dense_ =
      make_dense_state(ctx, model_.parameters(),
                       {.decay_vectors = options.decay_vectors, .rounded = std::move(rounded)});
  sampler_.reserve_positives(options.accumulate * n);
  for (auto& settings : row_settings_) settings.resize(1 + options.features.tables.size());
  loss_ = Tensor(DType::kF32, {n}, device);
  log_sum_exp_ = Tensor(DType::kF32, {n}, device);
  dloss_ = Tensor(DType::kF32, {n}, device);

  hosts_ = {world.split(0, world.rank(), "ranks"), world.split(0, world.rank(), "ranks (ahead)")};
  devices_ = {device_ranks(ctx, world, options.ranks, "numbers"),
              device_ranks(next, world, options.ranks, "numbers (ahead)")};
  dense_ranks_ = device_ranks(ctx, world, options.ranks, "dense gradients");
  GradientBlocks gradients = gradient_blocks(model_, options.model.layers);
  blocks_by_layers_ = std::move(gradients.by_layers);
  reducer_ = std::make_unique<DenseReducer>(ctx, *dense_ranks_, std::move(gradients.blocks),
                                            options.ranks.bucket_bytes);

  const std::int64_t own = options.negatives.shared ? 0 : options.negatives.count;
  const std::int64_t touched = touched_capacity(options, num_items);
  ctx.workspace().reserve(
      std::max({ops::softmax_workspace_bytes(ctx, n, touched, width, own, softmax_options(options)),
                ops::sum_values_workspace_bytes(ctx, n),
                ops::squared_sum_workspace_bytes(ctx, dense_.slices),
                ops::squared_sum_workspace_bytes(
                    ctx, (touched + most_feature_rows(options, num_items)) * width)}));
}

template <class T>
std::unique_ptr<StepRowMemory<T>> RetrievalStep<T>::make_memory(const Context& ctx) const {
  return std::make_unique<StepRowMemory<T>>(ctx, options_, num_items_);
}

template <class T>
std::unique_ptr<StepInFlight<T>> RetrievalStep<T>::make_flight(const Context& ctx,
                                                               const Context& next) const {
  auto flight = std::make_unique<StepInFlight<T>>(ctx, options_, num_items_, *rows_);
  if (flight->feature_rows) flight->feature_rows->reserve(next);
  return flight;
}

template <class T>
void RetrievalStep<T>::initialise(const Context& ctx) {
  model_.initialise(ctx, options_.seed);
  rows_->initialise(ctx);
  refresh(ctx);
}

template <class T>
void RetrievalStep<T>::refresh(const Context& ctx) {
  model_.refresh(ctx);
  rows_->refresh_copies(ctx);
}

template <class T>
std::vector<NamedTensor> RetrievalStep<T>::optimiser_tensors() {
  std::vector<NamedTensor> tensors =
      moment_tensors(model_.parameters(), dense_.first_moments, dense_.second_moments);
  if (Tensor* scales = model_.fp8_scales()) tensors.push_back(named("fp8_scales", *scales));
  return tensors;
}

template <class T>
PlannedBytes RetrievalStep<T>::bytes(const Context& ctx) const {
  const Device device = ctx.device();
  PlannedBytes bytes;
  bytes.add(device, ctx.workspace().capacity() + model_.activation_bytes());
  if (&ctx.host() != &ctx) bytes.host += ctx.host().workspace().capacity();
  for (const Tensor* tensor : {&loss_, &log_sum_exp_, &dloss_}) bytes.add(*tensor);
  bytes += tokens_.bytes();
  bytes += rows_->bytes();
  bytes += inputs_.bytes();
  bytes.host += sampler_.bytes();
  bytes.add(device, reducer_->bytes());
  for (int i = 0; i < model_.parameters().size(); ++i) {
    bytes.add(device, 4 * model_.parameters().value(i).bytes());  // gradient, and two moments
  }
  bytes.add(device, model::weight_copy_bytes<T>(ctx, model_.parameters()));
  return bytes;
}

template class RetrievalStep<float>;
template class RetrievalStep<bf16>;

}  // namespace turbogr::train
