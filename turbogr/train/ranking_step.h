// One training step of the ranking task, the same for one rank or many:
//
//   prepare       the ids of all features find their rows; how many targets and how much weight all
//                 ranks have together
//   fetch         rows of all tables, from wherever they are (embedding/row_source.h)
//   compute       features from rows, forward, loss, backward, gradients of rows
//   return_rows   those gradients, summed where the rows are
//   update_dense  sums over ranks, clipping, whether all is finite, and the dense weights
//   update_rows   row-wise, never clipped
//
// The loss, and so every gradient, is that of the global batch: each rank divides by the weights of
// all. A step whose loss or gradients are not finite changes nothing. For now the stages run one
// after the other (the serial schedule), on a CPU, with one batch a step.
//
//   RankingTrainStep<float> step(ctx, world, options, rows);
//   step.initialise(ctx);
//   const RankingResult result = step.run(ctx, batch);     // this rank's share, which may be empty
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/model/feature_rows.h"
#include "turbogr/model/ranking_batch.h"
#include "turbogr/model/ranking_model.h"
#include "turbogr/ops/rows/update.h"
#include "turbogr/train/dense_reducer.h"
#include "turbogr/train/dense_state.h"
#include "turbogr/train/step_options.h"

namespace turbogr::train {

struct RankingTrainOptions {
  model::RankingOptions model;
  model::RankingMemory memory;
  model::RankingFeatures features;
  AdamWSettings dense = {.beta1 = 0.95, .beta2 = 0.999};
  AdamWSettings table = {.epsilon_outside = true};
  // Rates are multiplied by min(1, step / warmup), the step counted from 0: the first one then
  // moves no weight, but gives the optimisers their first gradients.
  std::int64_t warmup_steps = 0;
  double clip = 1;  // of the dense gradients' norm; 0: none
  double loss_scale = 0.2;
  std::vector<std::uint8_t> regression;  // [K], as in TaskLossOptions
  // Attention is divided by what batch_norm_length says of this rank's batch, so that scores depend
  // on who shares it; else by the model's own number.
  bool norm_by_batch = false;
  std::int64_t bucket_bytes = 1 << 20;  // of the dense gradients' sums
  std::uint64_t seed = 1;
};

// `predicting` counts targets; the gradient's norm is that of the dense weights.
struct RankingResult : StepResult {
  std::int64_t out_of_range = 0;  // ids outside of their tables, which read row 0
};

template <class T>  // float or bf16
class RankingTrainStep {
 public:
  // `rows` has the tables of options.features, all as wide as the model's embedding, and spreads
  // them over the ranks where there are several. All outlive the step. Collective.
  RankingTrainStep(const Context& ctx, dist::Communicator& world,
                   const RankingTrainOptions& options, embedding::RowSource<T>& rows);
  void initialise(const Context& ctx);
  void refresh(const Context& ctx);  // after weights were loaded

  // Collective; results are those of all ranks together.
  RankingResult run(const Context& ctx, const model::RankingBatch& batch);

  std::int64_t steps_done() const { return steps_done_; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  const RankingTrainOptions& options() const { return options_; }
  model::RankingModel<T>& model() { return model_; }
  embedding::RowSource<T>& rows() { return rows_; }
  std::span<Tensor> first_moments() { return dense_.first_moments; }
  std::span<Tensor> second_moments() { return dense_.second_moments; }
  Rows<const T> logits() const { return logits_; }  // of the last step's targets on this rank

 private:
  void prepare(const Context& ctx, const model::RankingBatch& batch);
  void fetch(const Context& ctx);
  void compute(const Context& ctx, const model::RankingBatch& batch);
  void return_rows(const Context& ctx);
  void update_dense(const Context& ctx);
  void update_rows(const Context& ctx);
  model::RankingStep model_step(const model::RankingBatch& batch) const;
  AdamWSettings settings_of(const AdamWSettings& given) const;
  void make_reducer(const Context& ctx);

  RankingTrainOptions options_;
  std::unique_ptr<dist::Communicator> ranks_, dense_ranks_;
  model::RankingModel<T> model_;
  embedding::RowSource<T>& rows_;
  model::FeatureRows feature_rows_;
  DenseState dense_;
  std::unique_ptr<DenseReducer> reducer_;
  std::int64_t steps_done_ = 0;

  // Of the step under way.
  std::vector<embedding::TouchedRows> touched_;  // one a table
  std::unique_ptr<embedding::RowRequest> request_;
  Tensor table_rows_, table_gradients_;  // [U, E] of all tables, end to end; gradients in f32
  std::vector<embedding::StepRows<T>> fetched_;  // each table's part
  std::vector<Rows<const float>> returned_;
  std::vector<AdamWSettings> row_settings_;
  Tensor slots_, dslots_;  // [S, E], features as the model reads them
  Tensor dlogits_;         // [M, K]
  Rows<const T> logits_;
  std::vector<double> weight_sums_;  // [K], of all ranks
  std::vector<double> squares_;      // of the dense gradients, then of each table's
  std::vector<double> losses_;       // [K]
  ops::StepScale dense_scale_ = {}, row_scale_ = {};  // clipped, and not
  RankingResult result_;
};

}  // namespace turbogr::train
