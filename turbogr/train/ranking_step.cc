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
  prepare(ctx, batch);
  fetch(ctx);
  compute(ctx, batch);
  return_rows(ctx);
  update_dense(ctx);
  update_rows(ctx);
  ++steps_done_;
  return result_;
}

template <class T>
void RankingTrainStep<T>::prepare(const Context& ctx, const model::RankingBatch& batch) {
  feature_rows_.read(ctx, batch);
  for (std::size_t t = 0; t < touched_.size(); ++t) {
    touched_[t].clear();
    touched_[t].mark(ctx, feature_rows_.ids(t));
    touched_[t].number(ctx);
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
  ops::weight_sums(ctx, batch.weights, all_of(weight_sums_));
  ranks_->all_reduce(weight_sums_, dist::Reduce::kSum);
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
  const model::RankingStep step = model_step(batch);
  const auto rows = feature_rows_.split<const T>(slots);
  logits_ = model_.forward(ctx, step, rows);

  const Rows<T> dlogits = first_rows<T>(dlogits_, logits_.rows);
  ops::task_loss<T>(ctx, logits_, batch.labels, batch.weights,
                    {.scale = options_.loss_scale,
                     .weight_sums = all_of(weight_sums_),
                     .regression = {options_.regression.data(), {std::ssize(options_.regression)}}},
                    all_of(losses_), dlogits);

  ops::zero_gradients(ctx, dense_.slices);
  model_.backward(ctx, step, rows, dlogits, feature_rows_.split<T>(dslots));
  feature_rows_.sum_gradients<T>(ctx, dslots,
                                 first_rows<float>(table_gradients_, feature_rows_.num_rows()));
}

template <class T>
void RankingTrainStep<T>::return_rows(const Context& ctx) {
  const Rows<float> all = first_rows<float>(table_gradients_, feature_rows_.num_rows());
  for (std::size_t t = 0; t < returned_.size(); ++t) {
    returned_[t] = {all.row(feature_rows_.first_row(t)), feature_rows_.ids(t).shape[0], all.cols,
                    all.cols};
  }
  rows_.return_gradients(ctx, Lane::kThis, *request_, Part::kAll, returned_, squares_.data() + 1);
}

// The tables' gradients only have to be finite: they neither make the norm nor are clipped by it.
template <class T>
void RankingTrainStep<T>::update_dense(const Context& ctx) {
  reducer_->finish();
  ranks_->all_reduce({squares_.data() + 1, std::ssize(squares_) - 1}, dist::Reduce::kSum);
  ranks_->all_reduce(losses_, dist::Reduce::kSum);
  ops::squared_sum(ctx, dense_.slices, squares_.data());
  ops::make_step_scale(ctx, all_of(squares_), all_of(losses_),
                       {.clip = options_.clip, .counted = 1}, &dense_scale_);
  ops::make_step_scale(ctx, all_of(squares_), all_of(losses_), {.counted = 1}, &row_scale_);
  const AdamWSettings settings = settings_of(options_.dense);
  ops::adamw(ctx, dense_.slices, settings, &dense_scale_);
  model_.refresh(ctx);
  result_.loss = dense_scale_.loss;
  result_.gradient_norm = dense_scale_.norm;
  result_.finite = dense_scale_.finite != 0;
  result_.rate = result_.finite ? settings.rate : 0;
}

template <class T>
void RankingTrainStep<T>::update_rows(const Context& ctx) {
  std::fill(row_settings_.begin(), row_settings_.end(), settings_of(options_.table));
  rows_.update(ctx, Lane::kThis, *request_, Part::kAll, row_settings_, &row_scale_);
}

template <class T>
model::RankingStep RankingTrainStep<T>::model_step(const model::RankingBatch& batch) const {
  return {.sequences = batch.sequences,
          .num_targets = batch.num_targets(),
          .actions = batch.actions,
          .row_keys = batch.row_keys,
          .norm_length = options_.norm_by_batch ? model::batch_norm_length(batch.sequences) : 0,
          .training = true,
          .seed = options_.seed,
          .step = static_cast<std::uint64_t>(steps_done_)};
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

template <class T>
RankingTrainStep<T>::RankingTrainStep(const Context& ctx, dist::Communicator& world,
                                      const RankingTrainOptions& options,
                                      embedding::RowSource<T>& rows)
    : options_(options),
      ranks_(world.split(0, world.rank(), "ranks")),
      dense_ranks_(world.split(0, world.rank(), "dense gradients")),
      model_(ctx, options.model, options.memory),
      rows_(rows),
      feature_rows_(ctx, options.features, options.memory.layers.sequences,
                    options.memory.layers.capacity),
      dense_(make_dense_state(ctx, model_.parameters(), {})),
      fetched_(feature_rows_.num_tables()),
      returned_(feature_rows_.num_tables()),
      row_settings_(feature_rows_.num_tables()),
      weight_sums_(static_cast<std::size_t>(options.model.tasks)),
      squares_(1 + feature_rows_.num_tables()),
      losses_(static_cast<std::size_t>(options.model.tasks)) {
  TGR_CHECK(ctx.device() == Device::kCpu,
            "the ranking task trains on a CPU only; use train.device = \"cpu\"");
  TGR_CHECK(std::ssize(options.features.prefix) == options.model.prefix &&
                std::ssize(options.features.items) == options.model.item_features,
            options.features.prefix.size(), " prefix and ", options.features.items.size(),
            " item features for a model of ", options.model.prefix, " and ",
            options.model.item_features);
  TGR_CHECK(world.size() == 1 || rows.group() != nullptr, "tables that one rank holds for ",
            world.size(), " ranks; spread them over the ranks");
  const std::int64_t width = options.model.embedding;
  std::vector<std::int64_t> most;
  for (std::size_t t = 0; t < feature_rows_.num_tables(); ++t) {
    const std::int64_t table_rows = rows.sharding(t).rows();
    TGR_CHECK(table_rows == options.features.table_rows[t] && rows.shard(t).width() == width,
              "table ", t, " is [", table_rows, ", ", rows.shard(t).width(),
              "]; its features want [", options.features.table_rows[t], ", ", width, "]");
    most.push_back(feature_rows_.most_ids(t));
    touched_.emplace_back(table_rows, most.back());
  }
  request_ = rows.make_request(ctx, most);
  table_rows_ = Tensor(dtype_of<T>(), {feature_rows_.most_rows(), width});
  table_gradients_ = Tensor(DType::kF32, {feature_rows_.most_rows(), width});
  slots_ = Tensor(dtype_of<T>(), {feature_rows_.most_slots(), width});
  dslots_ = Tensor(dtype_of<T>(), {feature_rows_.most_slots(), width});
  dlogits_ = Tensor(dtype_of<T>(), {options.memory.targets, options.model.tasks});
  make_reducer(ctx);
  ctx.workspace().reserve(
      std::max(ops::squared_sum_workspace_bytes(ctx, dense_.slices),
               ops::squared_sum_workspace_bytes(ctx, feature_rows_.most_rows() * width)));
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

template class RankingTrainStep<float>;
template class RankingTrainStep<bf16>;

}  // namespace turbogr::train
