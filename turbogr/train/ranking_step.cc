#include "turbogr/train/ranking_step.h"

#include <algorithm>
#include <array>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/loss/task_loss.h"

namespace turbogr::train {
namespace {

using embedding::Lane;
using embedding::Part;
using model::first_rows;

template <class V>
View<V, 1> all_of(std::vector<V>& values) {
  return {values.data(), {std::ssize(values)}};
}

}  // namespace

template <class T>
RankingResult RankingTrainStep<T>::run(const Context& ctx, const model::RankingBatch& batch) {
  TGR_CHECK(pending() == 0, pending(), " steps are pending; finish them before another is run");
  submit(ctx, batch);
  return finish();
}

template <class T>
void RankingTrainStep<T>::submit(const Context& ctx, const model::RankingBatch& batch) {
  TGR_CHECK(pending() < kInFlight, pending(), " steps are pending; finish one before the next");
  prepare(ctx, batch);
  fetch(ctx);
  compute(ctx, batch);
  return_rows(ctx);
  update_dense(ctx);
  update_rows(ctx);
  Outcome& outcome = outcomes_[static_cast<std::size_t>(submitted_ % kInFlight)];
  outcome.result = result_;
  copy_bytes(ctx, outcome.numbers.data(), numbers_.data(), outcome.numbers.bytes());
  outcome.sent.record(ctx);
  ++submitted_;
  ++steps_done_;
}

template <class T>
RankingResult RankingTrainStep<T>::finish() {
  TGR_CHECK(pending() > 0, "no step is pending; submit one before it is finished");
  Outcome& outcome = outcomes_[static_cast<std::size_t>(finished_++ % kInFlight)];
  outcome.sent.wait();
  const auto& scale = *reinterpret_cast<const ops::StepScale*>(outcome.numbers.data());
  RankingResult result = outcome.result;
  result.loss = scale.loss;
  result.gradient_norm = scale.norm;
  result.finite = scale.finite != 0;
  if (!result.finite) result.rate = 0;
  return result;
}

template <class T>
void RankingTrainStep<T>::prepare(const Context& ctx, const model::RankingBatch& batch) {
  feature_rows_.read(ctx, batch);
  for (std::size_t t = 0; t < touched_.size(); ++t) {
    touched_[t].clear();
    touched_[t].mark(ctx.host(), feature_rows_.ids(t));
    touched_[t].number(ctx.host());
  }
  std::array<std::int64_t, 3> sums = {batch.sequences.num_tokens(), batch.num_targets(),
                                      feature_rows_.out_of_range()};
  ranks_->all_reduce({sums.data(), std::ssize(sums)}, dist::Reduce::kSum);
  TGR_CHECK(sums[1] > 0, "a step without targets on any rank; the batches are empty");
  result_ = {};
  result_.step = steps_done_ + 1;
  result_.tokens = sums[0];
  result_.predicting = sums[1];
  result_.out_of_range = sums[2];
  num_targets_ = batch.num_targets();
  ops::weight_sums(ctx.host(), batch.weights, all_of(weight_sums_));
  ranks_->all_reduce(weight_sums_, dist::Reduce::kSum);
  // The loss divides by these, so a task that counts double has half of them.
  for (std::size_t k = 0; k < options_.task_weights.size(); ++k) {
    weight_sums_[k] = std::max(1.0, weight_sums_[k]) / options_.task_weights[k];
  }
  rows_.prepare(ctx, Lane::kThis,
                {.step = steps_done_,
                 .tables = touched_,
                 .predicting = batch.num_targets(),
                 .all_predicting = result_.predicting},
                *request_);
}

// Into one matrix, table by table: features read it without asking which table a row is of.
template <class T>
void RankingTrainStep<T>::fetch(const Context& ctx) {
  const Rows<T> rows = first_rows<T>(table_rows_, feature_rows_.num_rows());
  for (std::size_t t = 0; t < fetched_.size(); ++t) {
    fetched_[t] = {
        {rows.row(feature_rows_.first_row(t)), feature_rows_.ids(t).shape[0], rows.cols, rows.cols},
        {}};
  }
  rows_.fetch(ctx, Lane::kThis, *request_, fetched_);
}

// Gradients of this rank's targets, weighed so that over all ranks they are those of the loss.
template <class T>
void RankingTrainStep<T>::compute(const Context& ctx, const model::RankingBatch& batch) {
  const std::int64_t num_slots = feature_rows_.num_slots();
  const Rows<T> slots = first_rows<T>(slots_, num_slots),
                dslots = first_rows<T>(dslots_, num_slots);
  feature_rows_.pool<T>(ctx, first_rows<T>(std::as_const(table_rows_), feature_rows_.num_rows()),
                        slots);
  task_feed_.begin();
  sent_weight_sums_ = task_feed_.put(ctx, View<const double, 1>(all_of(weight_sums_)));
  sent_regression_ = task_feed_.put(
      ctx,
      View<const std::uint8_t, 1>{options_.regression.data(), {std::ssize(options_.regression)}});
  task_feed_.end(ctx);
  const double norm_length = options_.norm_by_batch ? model::batch_norm_length(batch.sequences) : 0;
  ops::zero_gradients(ctx, dense_.slices);
  zero_bytes(ctx, number(first_loss()), static_cast<std::size_t>(num_losses()) * sizeof(double));
  const auto rows = feature_rows_.split<const T>(slots);
  const auto drows = feature_rows_.split<T>(dslots);
  double* losses = number(first_loss());
  for (const model::RankingPart& part : inputs_.send(ctx, batch)) {
    compute_part(ctx, part, norm_length, rows_of(part, rows), rows_of(part, drows), losses);
    losses += options_.model.tasks;
  }
  feature_rows_.sum_gradients<T>(ctx, dslots,
                                 first_rows<float>(table_gradients_, feature_rows_.num_rows()));
}

template <class T>
void RankingTrainStep<T>::compute_part(const Context& ctx, const model::RankingPart& part,
                                       double norm_length, const model::RankingRows<const T>& rows,
                                       const model::RankingRows<T>& drows, double* losses) {
  model::RankingStep step = part.step;
  step.norm_length = norm_length;
  step.training = true;
  step.seed = options_.seed;
  step.step = static_cast<std::uint64_t>(steps_done_);
  const Rows<const T> logits = model_.forward(ctx, step, rows);
  const Rows<T> dlogits = first_rows<T>(dlogits_, logits.rows);
  const std::int64_t tasks = options_.model.tasks;
  ops::task_loss<T>(ctx, logits, part.labels, part.weights,
                    {.scale = options_.loss_scale,
                     .weight_sums = sent_weight_sums_,
                     .regression = sent_regression_},
                    {losses, {tasks}}, dlogits);
  copy_bytes(ctx, first_rows<T>(logits_, num_targets_).row(part.first_target), logits.data,
             static_cast<std::size_t>(logits.rows * tasks) * sizeof(T));
  model_.backward(ctx, step, rows, dlogits, drows);
}

template <class T>
void RankingTrainStep<T>::return_rows(const Context& ctx) {
  const Rows<float> all = first_rows<float>(table_gradients_, feature_rows_.num_rows());
  for (std::size_t t = 0; t < returned_.size(); ++t) {
    returned_[t] = {all.row(feature_rows_.first_row(t)), feature_rows_.ids(t).shape[0], all.cols,
                    all.cols};
  }
  rows_.return_gradients(ctx, Lane::kThis, *request_, Part::kAll, returned_, number(kSquares + 1));
}

// The tables' gradients only have to be finite: they neither make the norm nor are clipped by it.
template <class T>
void RankingTrainStep<T>::update_dense(const Context& ctx) {
  reducer_->finish();
  const std::int64_t tables = std::ssize(touched_);
  number_ranks_->all_reduce({number(kSquares + 1), tables + num_losses()}, dist::Reduce::kSum);
  ops::squared_sum(ctx, dense_.slices, number(kSquares));
  const View<const double, 1> squares = {number(kSquares), {1 + tables}};
  const View<const double, 1> losses = {number(first_loss()), {num_losses()}};
  ops::make_step_scale(ctx, squares, losses, {.clip = options_.clip, .counted = 1}, dense_scale());
  ops::make_step_scale(ctx, squares, losses, {.counted = 1}, row_scale());
  const AdamWSettings settings = settings_of(options_.dense);
  ops::adamw(ctx, dense_.slices, settings, dense_scale());
  model_.refresh(ctx);
  result_.rate = settings.rate;
}

template <class T>
void RankingTrainStep<T>::update_rows(const Context& ctx) {
  std::fill(row_settings_.begin(), row_settings_.end(), settings_of(options_.table));
  rows_.update(ctx, Lane::kThis, *request_, Part::kAll, row_settings_, row_scale());
}

template <class T>
AdamWSettings RankingTrainStep<T>::settings_of(const AdamWSettings& given) const {
  AdamWSettings settings = given;
  if (steps_done_ < options_.warmup_steps) {
    settings.rate *= static_cast<double>(steps_done_) / static_cast<double>(options_.warmup_steps);
  }
  settings.step = static_cast<double>(steps_done_ + 1);
  return settings;
}

// What a step is made of.

namespace {

RankingTrainOptions with_batch_size(RankingTrainOptions options) {
  if (options.batch.sequences == 0) options.batch = model::size_of(options.memory);
  return options;
}

}  // namespace

template <class T>
RankingTrainStep<T>::RankingTrainStep(const Context& ctx, dist::Communicator& world,
                                      const RankingTrainOptions& given,
                                      embedding::RowSource<T>& rows)
    : options_(with_batch_size(given)),
      ranks_(world.split(0, world.rank(), "ranks")),
      number_ranks_(reach(ctx, world, "numbers")),
      dense_ranks_(reach(ctx, world, "dense gradients")),
      model_(ctx, given.model, given.memory),
      rows_(rows),
      feature_rows_(ctx, given.features, options_.batch.sequences, options_.batch.tokens),
      inputs_(ctx, given.model, given.memory, options_.batch),
      task_feed_(ctx, Feed::room<double>(static_cast<std::size_t>(given.model.tasks)) +
                          Feed::room<std::uint8_t>(given.regression.size())),
      dense_(make_dense_state(ctx, model_.parameters(), {})),
      outcomes_{{{{}, {}, Event(ctx)}, {{}, {}, Event(ctx)}}},
      fetched_(feature_rows_.num_tables()),
      returned_(feature_rows_.num_tables()),
      row_settings_(feature_rows_.num_tables()),
      weight_sums_(static_cast<std::size_t>(given.model.tasks)) {
  const RankingTrainOptions& options = options_;
  TGR_CHECK(std::ssize(options.features.prefix) == options.model.prefix &&
                std::ssize(options.features.items) == options.model.item_features,
            options.features.prefix.size(), " prefix and ", options.features.items.size(),
            " item features for a model of ", options.model.prefix, " and ",
            options.model.item_features);
  TGR_CHECK(world.size() == 1 || options.plan_only || rows.group() != nullptr,
            "tables that one rank holds for ", world.size(), " ranks; spread them over the ranks");
  const std::int64_t width = options.model.embedding;
  std::vector<std::int64_t> most;
  for (std::size_t t = 0; t < feature_rows_.num_tables(); ++t) {
    const std::int64_t wanted = options.features.table_rows[t];
    TGR_CHECK(
        options.plan_only || (rows.sharding(t).rows() == wanted && rows.shard(t).width() == width),
        "table ", t, " is [", rows.sharding(t).rows(), ", ", rows.shard(t).width(),
        "]; its features want [", wanted, ", ", width, "]");
    most.push_back(feature_rows_.most_ids(t));
    touched_.emplace_back(wanted, most.back());
  }
  request_ = rows.make_request(ctx, most);
  const Device device = ctx.device();
  table_rows_ = Tensor(dtype_of<T>(), {feature_rows_.most_rows(), width}, device);
  table_gradients_ = Tensor(DType::kF32, {feature_rows_.most_rows(), width}, device);
  slots_ = Tensor(dtype_of<T>(), {feature_rows_.most_slots(), width}, device);
  dslots_ = Tensor(dtype_of<T>(), {feature_rows_.most_slots(), width}, device);
  logits_ = Tensor(dtype_of<T>(), {options.batch.targets, options.model.tasks}, device);
  dlogits_ = Tensor(dtype_of<T>(), {options.memory.targets, options.model.tasks}, device);
  numbers_ = Tensor(DType::kF64, {first_loss() + num_losses()}, device);
  for (Outcome& outcome : outcomes_) {
    outcome.numbers =
        Tensor(DType::kF64, {kSquares}, device == Device::kCuda ? Device::kPinned : Device::kCpu);
  }
  make_reducer(ctx);
  ctx.workspace().reserve(
      std::max({ops::squared_sum_workspace_bytes(ctx, dense_.slices),
                ops::squared_sum_workspace_bytes(ctx, feature_rows_.most_rows() * width),
                ops::task_loss_workspace_bytes(ctx, options.memory.targets, options.model.tasks),
                feature_rows_.workspace_bytes(ctx, width)}));
}

// Ranks over the device's memory.
template <class T>
std::unique_ptr<dist::Communicator> RankingTrainStep<T>::reach(const Context& ctx,
                                                               dist::Communicator& world,
                                                               const char* name) const {
  std::unique_ptr<dist::Communicator> ranks = world.split(0, world.rank(), name);
  if (ctx.device() == Device::kCpu) return ranks;
  return dist::make_device_communicator(options_.link, std::move(ranks), ctx, options_.wait);
}

template <class T>
void RankingTrainStep<T>::make_reducer(const Context& ctx) {
  std::vector<GradientBlock> blocks;
  for (const ops::UpdateSlice& slice : dense_.slices.slices()) {
    blocks.push_back({slice.gradient, slice.count});
  }
  reducer_ =
      std::make_unique<DenseReducer>(ctx, *dense_ranks_, std::move(blocks), options_.bucket_bytes);
}

template <class T>
void RankingTrainStep<T>::initialise(const Context& ctx) {
  model_.initialise(ctx, options_.seed);
  rows_.initialise(ctx);
  refresh(ctx);
}

template <class T>
void RankingTrainStep<T>::refresh(const Context& ctx) {
  model_.refresh(ctx);
  rows_.refresh_copies(ctx);
}

template <class T>
Rows<const T> RankingTrainStep<T>::logits() const {
  return first_rows<T>(logits_, num_targets_);
}

template <class T>
PlannedBytes RankingTrainStep<T>::bytes(const Context& ctx) const {
  const Device device = ctx.device();
  PlannedBytes bytes = feature_rows_.bytes();
  bytes += inputs_.bytes();
  bytes += request_->bytes();
  bytes.add(device, ctx.workspace().capacity() + model_.activation_bytes() + reducer_->bytes());
  for (const Tensor* tensor :
       {&table_rows_, &table_gradients_, &slots_, &dslots_, &logits_, &dlogits_}) {
    bytes.add(*tensor);
  }
  for (int i = 0; i < model_.parameters().size(); ++i) {
    bytes.add(device, 4 * model_.parameters().value(i).bytes());  // gradient, and two moments
  }
  for (const embedding::TouchedRows& touched : touched_) {
    bytes.host += embedding::TouchedRows::bytes_of(touched.rows(), feature_rows_.most_rows());
  }
  return bytes;
}

template class RankingTrainStep<float>;
template class RankingTrainStep<bf16>;

}  // namespace turbogr::train
