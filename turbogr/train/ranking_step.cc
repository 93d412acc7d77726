#include "turbogr/train/ranking_step.h"

#include <algorithm>
#include <array>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/loss/task_loss.h"
#include "turbogr/train/gradient_blocks.h"
#include "turbogr/train/make_rows.h"
#include "turbogr/train/step_parts.h"

namespace turbogr::train {
namespace {

using model::first_rows;

template <class V>
View<V, 1> all_of(std::vector<V>& values) {
  return {values.data(), {std::ssize(values)}};
}

}  // namespace

template <class T>
void RankingTrainStep<T>::begin(Flight& step, const model::RankingBatch& batch, bool keep) {
  step.batch = keep ? step.kept.keep(batch) : batch;
}

template <class T>
void RankingTrainStep<T>::prepare(const Context& ctx, Lane lane, Flight& step) {
  const model::RankingBatch& batch = step.batch;
  model::FeatureRows& features = step.feature_rows;
  {
    const auto scope = clock_.enter(ctx, stages::kFindIds, lane);
    features.read(ctx, batch);
    touch_features(ctx.host(), features, step.touched);
    ops::weight_sums(ctx.host(), batch.weights, all_of(step.weight_sums));
  }
  const auto scope = clock_.enter(ctx, stages::kIds, lane);
  dist::Communicator& ranks = *hosts_[static_cast<std::size_t>(lane)];
  std::array<std::int64_t, 4> sums = {batch.sequences.num_tokens(), batch.num_targets(),
                                      features.out_of_range(), step.stop ? 1 : 0};
  ranks.all_reduce({sums.data(), std::ssize(sums)}, dist::Reduce::kSum);
  TGR_CHECK(sums[1] > 0, "a step without targets on any rank; the batches are empty");
  step.result = {};
  step.result.step = step.step + 1;
  step.result.tokens = sums[0];
  step.result.predicting = sums[1];
  step.result.out_of_range = sums[2];
  step.stop = sums[3] > 0;
  ranks.all_reduce(step.weight_sums, dist::Reduce::kSum);
  // The loss divides by these, so a task that counts double has half of them.
  for (std::size_t k = 0; k < options_.task_weights.size(); ++k) {
    step.weight_sums[k] = std::max(1.0, step.weight_sums[k]) / options_.task_weights[k];
  }
  rows_->prepare(ctx, lane,
                 {.step = step.step,
                  .tables = step.touched,
                  .predicting = batch.num_targets(),
                  .all_predicting = step.result.predicting},
                 *step.request);
}

// Into one matrix, table by table: features read it without asking which table a row is of.
template <class T>
void RankingTrainStep<T>::fetch(const Context& ctx, Lane lane, Flight& step) {
  const auto scope = clock_.enter(ctx, stages::kFetch, lane);
  rows_->fetch(ctx, lane, *step.request, step.rows());
}

// Gradients of this rank's targets, weighed so that over all ranks they are those of the loss;
// dense ones are on their way to be summed over ranks when it returns.
template <class T>
void RankingTrainStep<T>::compute(const Context& ctx, Flight& step) {
  const auto scope = clock_.enter(ctx, stages::kCompute, Lane::kThis);
  const model::RankingBatch& batch = step.batch;
  const model::FeatureRows& features = step.feature_rows;
  const std::int64_t num_slots = features.num_slots();
  const Rows<T> slots = first_rows<T>(slots_, num_slots),
                dslots = first_rows<T>(dslots_, num_slots);
  features.pool<T>(ctx, step.all_rows(), slots);
  rows_->release_rows(ctx);
  task_feed_.begin();
  sent_weight_sums_ = task_feed_.put(ctx, View<const double, 1>(all_of(step.weight_sums)));
  sent_regression_ = task_feed_.put(
      ctx,
      View<const std::uint8_t, 1>{options_.regression.data(), {std::ssize(options_.regression)}});
  task_feed_.end(ctx);
  norm_length_ = options_.norm_by_batch ? model::batch_norm_length(batch.sequences) : 0;
  num_targets_ = batch.num_targets();
  num_rows_ = features.num_rows();
  ops::zero_gradients(ctx, dense_.slices);
  step.numbers.clear(ctx);
  const auto rows = features.split<const T>(slots);
  const auto drows = features.split<T>(dslots);
  double* losses = step.numbers.losses();
  const std::span<const model::RankingPart> parts = inputs_.send(ctx, batch);
  for (const model::RankingPart& part : parts) {
    compute_part(ctx, step, part, rows_of(part, rows), rows_of(part, drows), losses,
                 &part == &parts.back());
    losses += options_.model.tasks;
  }
  rows_->await_gradients(ctx);
  features.sum_gradients<T>(ctx, dslots, step.gradient());
}

template <class T>
void RankingTrainStep<T>::compute_part(const Context& ctx, const Flight& flight,
                                       const model::RankingPart& part,
                                       const model::RankingRows<const T>& rows,
                                       const model::RankingRows<T>& drows, double* losses,
                                       bool last) {
  model::RankingStep step = part.step;
  step.norm_length = norm_length_;
  step.training = true;
  step.seed = options_.seed;
  step.step = static_cast<std::uint64_t>(flight.step);
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
  const bool as_they_come = last && options_.ranks.schedule != StepSchedule::kSerial;
  model_.backward(ctx, step, rows, dlogits, drows, [&](std::int64_t layers) {
    if (as_they_come) reducer_->ready(blocks_by_layers_[static_cast<std::size_t>(layers)]);
  });
}

template <class T>
void RankingTrainStep<T>::return_rows(const Context& ctx, Lane lane, Flight& step, Part part) {
  const auto scope = clock_.enter(ctx, stages::kReturn, lane);
  double* squares = step.rows_late ? step.numbers.late_squares(part) : step.numbers.row_squares();
  rows_->return_gradients(ctx, lane, *step.request, part, step.gradients(), squares);
}

// The tables' gradients only have to be finite: they neither make the norm nor are clipped by it.
template <class T>
void RankingTrainStep<T>::update_dense(const Context& ctx, Flight& step) {
  StepNumbers& numbers = step.numbers;
  const std::int64_t losses = model::RankingInputs::kMostParts * options_.model.tasks;
  {
    const auto scope = clock_.enter(ctx, stages::kDenseSums, Lane::kThis);
    sum_step(ctx, *reducer_, *number_ranks_, step, step.gradient(), losses);
  }
  const auto scope = clock_.enter(ctx, stages::kDenseUpdate, Lane::kThis);
  ops::squared_sum(ctx, dense_.slices, numbers.dense_squares());
  const View<const double, 1> squares = {numbers.dense_squares(), {1 + numbers.tables()}};
  const View<const double, 1> all_losses = {numbers.losses(), {losses}};
  ops::make_step_scale(ctx, squares, all_losses, {.clip = options_.clip, .counted = 1},
                       numbers.scale());
  ops::make_step_scale(ctx, squares, all_losses, {.counted = 1}, numbers.row_scale());
  const AdamWSettings settings = settings_at(options_.dense, options_.schedule, step.step);
  ops::adamw(ctx, dense_.slices, settings, numbers.scale());
  model_.refresh(ctx);
  step.result.rate = settings.rate;
}

template <class T>
void RankingTrainStep<T>::update_rows(const Context& ctx, Lane lane, Flight& step, Part part) {
  const auto scope = clock_.enter(ctx, stages::kRowUpdate, lane);
  // By the lane's own list: two steps may be updated at a time.
  std::vector<AdamWSettings>& settings = row_settings_[static_cast<std::size_t>(lane)];
  std::fill(settings.begin(), settings.end(),
            settings_at(options_.table, options_.schedule, step.step));
  rows_->update(ctx, lane, *step.request, part, settings, step.numbers.row_scale());
}

template <class T>
void RankingTrainStep<T>::finish(const Context& ctx, Flight& step) {
  step.numbers.send(ctx);
  step.done = true;
}

template <class T>
RankingResult RankingTrainStep<T>::result_of(Flight& step) {
  RankingResult result = step.result;
  const ops::StepScale scale = step.numbers.wait(result.step).scale;
  result.loss = scale.loss;
  result.gradient_norm = scale.norm;
  result.finite = scale.finite != 0;
  if (!result.finite) result.rate = 0;
  return result;
}

// What a step is made of.

namespace {

RankingTrainOptions with_batch_size(RankingTrainOptions options) {
  if (options.batch.sequences == 0) options.batch = model::size_of(options.memory);
  return options;
}

}  // namespace

template <class T>
RankingTrainStep<T>::RankingTrainStep(const Context& ctx, const Context& next,
                                      dist::Communicator& world, const RankingTrainOptions& given)
    : options_(with_batch_size(given)),
      world_(world),
      model_(ctx, given.model, given.memory),
      rows_(make_rows<T>(ctx, next, world,
                         {.tables = given.tables,
                          .memory = given.table_memory,
                          .ranks = given.ranks,
                          .plan_only = given.plan_only})),
      inputs_(ctx, given.model, given.memory, options_.batch),
      task_feed_(ctx, Feed::room<double>(static_cast<std::size_t>(given.model.tasks)) +
                          Feed::room<std::uint8_t>(given.regression.size())),
      dense_(make_dense_state(ctx, model_.parameters(), {})),
      clock_(ctx, next, given.ranks.sharded()) {
  check_tables();
  const RankingTrainOptions& options = options_;
  const Device device = ctx.device();
  for (auto& settings : row_settings_) settings.resize(options.tables.size());
  const model::FeatureRows features(ctx, options.features, options.batch.sequences,
                                    options.batch.tokens);  // for its sizes
  most_rows_ = features.most_rows();
  const std::int64_t width = options.model.embedding;
  slots_ = Tensor(dtype_of<T>(), {features.most_slots(), width}, device);
  dslots_ = Tensor(dtype_of<T>(), {features.most_slots(), width}, device);
  logits_ = Tensor(dtype_of<T>(), {options.batch.targets, options.model.tasks}, device);
  dlogits_ = Tensor(dtype_of<T>(), {options.memory.targets, options.model.tasks}, device);

  hosts_ = {world.split(0, world.rank(), "ranks"), world.split(0, world.rank(), "ranks (ahead)")};
  number_ranks_ = device_ranks(ctx, world, options.ranks, "numbers");
  dense_ranks_ = device_ranks(ctx, world, options.ranks, "dense gradients");
  GradientBlocks gradients = gradient_blocks(model_, options.model.layers);
  blocks_by_layers_ = std::move(gradients.by_layers);
  reducer_ = std::make_unique<DenseReducer>(ctx, *dense_ranks_, std::move(gradients.blocks),
                                            options.ranks.bucket_bytes);
  ctx.workspace().reserve(
      std::max({ops::squared_sum_workspace_bytes(ctx, dense_.slices),
                ops::squared_sum_workspace_bytes(ctx, most_rows_ * width),
                ops::task_loss_workspace_bytes(ctx, options.memory.targets, options.model.tasks),
                features.workspace_bytes(ctx, width)}));
}

template <class T>
void RankingTrainStep<T>::check_tables() const {
  TGR_CHECK(std::ssize(options_.features.prefix) == options_.model.prefix &&
                std::ssize(options_.features.items) == options_.model.item_features,
            options_.features.prefix.size(), " prefix and ", options_.features.items.size(),
            " item features for a model of ", options_.model.prefix, " and ",
            options_.model.item_features);
  TGR_CHECK(world_.size() == 1 || options_.plan_only || options_.ranks.sharded(),
            "tables that one rank holds for ", world_.size(), " ranks; spread them over the ranks");
  const std::vector<embedding::TableOptions>& tables = options_.tables;
  TGR_CHECK(tables.size() == options_.features.table_rows.size(), tables.size(),
            " tables for features of ", options_.features.table_rows.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const std::int64_t wanted = options_.features.table_rows[t];
    TGR_CHECK(tables[t].rows == wanted && tables[t].width == options_.model.embedding, "table ", t,
              " is [", tables[t].rows, ", ", tables[t].width, "]; its features want [", wanted,
              ", ", options_.model.embedding, "]");
  }
}

template <class T>
std::unique_ptr<RankingRowMemory> RankingTrainStep<T>::make_memory(const Context& ctx) const {
  const std::vector<std::int64_t> shape = {most_rows_, options_.model.embedding};
  auto memory = std::make_unique<RankingRowMemory>();
  memory->rows = Tensor(dtype_of<T>(), shape, ctx.device());
  memory->gradient = Tensor(DType::kF32, shape, ctx.device());
  return memory;
}

template <class T>
std::unique_ptr<RankingFlight<T>> RankingTrainStep<T>::make_flight(const Context& ctx,
                                                                   const Context& next) const {
  auto flight = std::make_unique<RankingFlight<T>>(ctx, options_, *rows_);
  flight->feature_rows.reserve(next);
  return flight;
}

template <class T>
void RankingTrainStep<T>::initialise(const Context& ctx) {
  model_.initialise(ctx, options_.seed);
  rows_->initialise(ctx);
  refresh(ctx);
}

template <class T>
void RankingTrainStep<T>::refresh(const Context& ctx) {
  model_.refresh(ctx);
  rows_->refresh_copies(ctx);
}

template <class T>
Rows<const T> RankingTrainStep<T>::logits() const {
  return first_rows<T>(logits_, num_targets_);
}

template <class T>
PlannedBytes RankingTrainStep<T>::bytes(const Context& ctx) const {
  const Device device = ctx.device();
  PlannedBytes bytes = inputs_.bytes();
  bytes += rows_->bytes();
  bytes.add(device, ctx.workspace().capacity() + model_.activation_bytes() + reducer_->bytes());
  for (const Tensor* tensor : {&slots_, &dslots_, &logits_, &dlogits_}) bytes.add(*tensor);
  for (int i = 0; i < model_.parameters().size(); ++i) {
    bytes.add(device, 4 * model_.parameters().value(i).bytes());  // gradient, and two moments
  }
  return bytes;
}

template class RankingTrainStep<float>;
template class RankingTrainStep<bf16>;

}  // namespace turbogr::train
