#include "turbogr/eval/evaluate_ranking.h"

#include <cmath>

#include "turbogr/core/check.h"

namespace turbogr::eval {

template <class T>
RankingEvaluator<T>::RankingEvaluator(const Context& ctx, model::RankingModel<T>& model,
                                      embedding::RowSource<T>& rows,
                                      const RankingEvaluation& options)
    : scorer_(ctx, model, rows,
              {.features = options.features,
               .memory = options.memory,
               .norm_by_batch = options.norm_by_batch}),
      options_(options) {
  const auto tasks = static_cast<std::size_t>(model.options().tasks);
  TGR_CHECK(options.regression.empty() || options.regression.size() == tasks, "an evaluation of ",
            options.regression.size(), " tasks with a model of ", tasks);
  clicks_.resize(tasks);
  errors_.resize(tasks);
}

template <class T>
void RankingEvaluator<T>::add(const Context& ctx, const model::RankingBatch& batch,
                              View<const std::int64_t, 1> groups) {
  const std::int64_t tasks = std::ssize(clicks_), targets = batch.num_targets();
  TGR_CHECK(groups.shape[0] == targets && batch.weights.rows == targets &&
                batch.labels.cols == tasks && batch.weights.cols == tasks,
            "ranking evaluation: ", groups.shape[0], " groups, [", targets, ", ", batch.labels.cols,
            "] labels and [", batch.weights.rows, ", ", batch.weights.cols,
            "] weights; all want a row a target and ", tasks, " tasks");
  const Rows<const T> logits = scorer_.score(ctx, batch);
  out_of_range_ += scorer_.out_of_range();
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

}  // namespace turbogr::eval
