// How well a ranking model judges the targets of batches: their probabilities, task by task, into
// click metrics; and the errors of tasks that predict a number.
//
//   RankingEvaluator<float> evaluator(ctx, model, rows, {.features = features, .memory = memory});
//   for (...) evaluator.add(ctx, batch, requests);
//   evaluator.add_up(ranks);
//   evaluator.clicks(0).figures();
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/eval/click_metrics.h"
#include "turbogr/eval/ranking_scorer.h"
#include "turbogr/model/ranking_batch.h"
#include "turbogr/model/ranking_model.h"

namespace turbogr::eval {

struct RankingEvaluation {
  model::RankingFeatures features;
  model::RankingMemory memory;           // of the model, which may be one for inference
  std::vector<std::uint8_t> regression;  // [K], 1 where the task predicts a number; empty: none
  bool norm_by_batch = false;            // as the model was trained
};

template <class T>  // float or bf16
class RankingEvaluator {
 public:
  // The model and the rows outlive it.
  RankingEvaluator(const Context& ctx, model::RankingModel<T>& model, embedding::RowSource<T>& rows,
                   const RankingEvaluation& options);

  // groups [M]: whose targets are compared with each other, a request or a user; the same number on
  // all ranks means the same group. Collective where rows are spread over ranks: one that has no
  // batch left gives an empty one.
  void add(const Context& ctx, const model::RankingBatch& batch,
           View<const std::int64_t, 1> groups);
  void add_up(dist::Communicator& ranks);  // becomes what all ranks have
  void clear();                            // begins another pass

  const ClickMetrics& clicks(std::size_t task) const { return clicks_[task]; }
  const ErrorMetrics& errors(std::size_t task) const { return errors_[task]; }
  std::int64_t out_of_range() const { return out_of_range_; }  // ids that read row 0 instead
  PlannedBytes bytes() const { return scorer_.bytes(); }  // but for the model's and the tables'

 private:
  bool predicts_number(std::size_t task) const {
    return !options_.regression.empty() && options_.regression[task] != 0;
  }

  RankingScorer<T> scorer_;
  RankingEvaluation options_;
  std::vector<ClickMetrics> clicks_;  // [K]
  std::vector<ErrorMetrics> errors_;  // [K]
  std::int64_t out_of_range_ = 0;
};

}  // namespace turbogr::eval
