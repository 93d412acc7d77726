#include "turbogr/eval/evaluate_ranking.h"

#include <cmath>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"

namespace turbogr::train {

using model::first_rows;

template <class T>
RankingEvaluator<T>::RankingEvaluator(const Context& ctx, model::RankingModel<T>& model,
                                      embedding::RowSource<T>& rows,
                                      const RankingEvaluation& options)
    : model_(model),
      rows_(rows),
      options_(options),
      feature_rows_(ctx, options.features, options.memory.layers.sequences,
                    options.memory.layers.capacity),
      inputs_(ctx, model.options(), options.memory, model::size_of(options.memory)) {
  const auto tasks = static_cast<std::size_t>(model.options().tasks);
  TGR_CHECK(options.regression.empty() || options.regression.size() == tasks, "an evaluation of ",
            options.regression.size(), " tasks with a model of ", tasks);
  const std::int64_t width = model.options().embedding;
  const Device device = ctx.device();
  table_rows_ = Tensor(dtype_of<T>(), {feature_rows_.most_rows(), width}, device);
  slots_ = Tensor(dtype_of<T>(), {feature_rows_.most_slots(), width}, device);
  logits_ = Tensor(dtype_of<T>(), {options.memory.targets, model.options().tasks},
                   device == Device::kCuda ? Device::kPinned : device);
  ctx.workspace().reserve(feature_rows_.workspace_bytes(ctx, width));
  clicks_.resize(tasks);
  errors_.resize(tasks);
}

template <class T>
void RankingEvaluator<T>::add(const Context& ctx, const model::RankingBatch& batch,
                              View<const std::int64_t, 1> groups) {
  const std::int64_t tasks = model_.options().tasks, targets = batch.num_targets();
  TGR_CHECK(groups.shape[0] == targets && batch.weights.rows == targets &&
                batch.labels.cols == tasks && batch.weights.cols == tasks,
            "ranking evaluation: ", groups.shape[0], " groups, [", targets, ", ", batch.labels.cols,
            "] labels and [", batch.weights.rows, ", ", batch.weights.cols,
            "] weights; all want a row a target and ", tasks, " tasks");
  feature_rows_.read(ctx, batch);
  out_of_range_ += feature_rows_.out_of_range();
  const Rows<T> rows = first_rows<T>(table_rows_, feature_rows_.num_rows());
  for (std::size_t t = 0; t < feature_rows_.num_tables(); ++t) {
    const View<const std::int64_t, 1> ids = feature_rows_.ids(t);
    rows_.gather(ctx, t, ids,
                 {rows.row(feature_rows_.first_row(t)), ids.shape[0], rows.cols, rows.cols});
  }
  const Rows<T> slots = first_rows<T>(slots_, feature_rows_.num_slots());
  feature_rows_.pool<T>(ctx, rows, slots);
  const Rows<T> logits = first_rows<T>(logits_, targets);
  for (const model::RankingPart& part : inputs_.send(ctx, batch)) {
    model::RankingStep step = part.step;
    if (options_.norm_by_batch) step.norm_length = model::batch_norm_length(batch.sequences);
    const Rows<const T> made =
        model_.forward(ctx, step, model::rows_of(part, feature_rows_.split<const T>(slots)));
    copy_bytes(ctx, logits.row(part.first_target), made.data,
               static_cast<std::size_t>(made.rows * tasks) * sizeof(T));
  }
  synchronize(ctx);

  for (std::int64_t i = 0; i < targets; ++i) {
    for (std::int64_t k = 0; k < tasks; ++k) {
      const auto task = static_cast<std::size_t>(k);
      const auto logit = static_cast<double>(convert<float>(logits(i, k)));
      const double label = batch.labels(i, k), weight = batch.weights(i, k);
      if (predicts_number(task)) {
        errors_[task].add(logit, label, weight);
      } else {
        clicks_[task].add({.probability = 1 / (1 + std::exp(-logit)),
                           .positive = label > 0,
                           .weight = weight,
                           .group = groups(i)});
      }
    }
  }
}

template <class T>
void RankingEvaluator<T>::add_up(dist::Communicator& ranks) {
  for (std::size_t task = 0; task < clicks_.size(); ++task) {
    predicts_number(task) ? errors_[task].add_up(ranks) : clicks_[task].add_up(ranks);
  }
  ranks.all_reduce({&out_of_range_, 1}, dist::Reduce::kSum);
}

template <class T>
void RankingEvaluator<T>::clear() {
  for (ClickMetrics& each : clicks_) each.clear();
  for (ErrorMetrics& each : errors_) each = {};
  out_of_range_ = 0;
}

template class RankingEvaluator<float>;
template class RankingEvaluator<bf16>;

}  // namespace turbogr::train
