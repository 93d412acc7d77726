// The logits of a ranking model for the targets of batches, without training.
//
//   RankingScorer<float> scorer(ctx, model, rows, {.features = features, .memory = memory});
//   Rows<const float> logits = scorer.score(ctx, batch);
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/tensor.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/model/feature_rows.h"
#include "turbogr/model/ranking_batch.h"
#include "turbogr/model/ranking_inputs.h"
#include "turbogr/model/ranking_model.h"

namespace turbogr::eval {

struct RankingScoring {
  model::RankingFeatures features;
  model::RankingMemory memory;  // of the model, which may be one for inference
  bool norm_by_batch = false;   // as the model was trained
};

template <class T>  // float or bf16
class RankingScorer {
 public:
  // The model and the rows outlive it.
  RankingScorer(const Context& ctx, model::RankingModel<T>& model, embedding::RowSource<T>& rows,
                const RankingScoring& options);

  // [M, K] of the host's memory, until the next one. Collective where rows are spread over ranks:
  // one that has no batch left gives an empty one.
  Rows<const T> score(const Context& ctx, const model::RankingBatch& batch);
  std::int64_t out_of_range() const { return feature_rows_.out_of_range(); }  // of the last batch
  PlannedBytes bytes() const;  // but for the model's and the tables'

 private:
  model::RankingModel<T>& model_;
  embedding::RowSource<T>& rows_;
  bool norm_by_batch_;
  model::FeatureRows feature_rows_;
  model::RankingInputs inputs_;
  Tensor table_rows_, slots_;  // [U, E] of all tables, end to end; [S, E]
  Tensor logits_;              // [M, K], where the host reads them
};

}  // namespace turbogr::eval
