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
// after the other (the serial schedule). A batch may be larger than what the model takes at a time
// (options.memory): its parts go through the model one after the other, and their gradients add up.
//
//   RankingTrainStep<float> step(ctx, world, options, rows);
//   step.initialise(ctx);
//   const RankingResult result = step.run(ctx, batch);     // this rank's share, which may be empty
//
// A GPU is never waited for but by finish: the host reads the next batch while it computes.
//
//   step.submit(ctx, first);
//   step.submit(ctx, second);
//   const RankingResult of_first = step.finish();
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/tensor.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/dist/device_communicator.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/model/feature_rows.h"
#include "turbogr/model/ranking_batch.h"
#include "turbogr/model/ranking_inputs.h"
#include "turbogr/model/ranking_model.h"
#include "turbogr/ops/rows/update.h"
#include "turbogr/train/dense_reducer.h"
#include "turbogr/train/dense_state.h"
#include "turbogr/train/step_options.h"

namespace turbogr::train {

struct RankingTrainOptions {
  model::RankingOptions model;
  model::RankingMemory memory;    // of the model: a batch may have several times as much,
  model::RankingBatchSize batch;  // this much; zeros: the same
  model::RankingFeatures features;
  AdamWSettings dense = {.beta1 = 0.95, .beta2 = 0.999};
  AdamWSettings table = {.epsilon_outside = true};
  // Rates are multiplied by min(1, step / warmup), the step counted from 0: the first one then
  // moves no weight, but gives the optimisers their first gradients.
  std::int64_t warmup_steps = 0;
  double clip = 1;  // of the dense gradients' norm; 0: none
  double loss_scale = 0.2;
  std::vector<std::uint8_t> regression;  // [K], as in TaskLossOptions
  std::vector<double> task_weights;      // [K], factors on the tasks' losses; empty: 1 each
  // Attention is divided by what batch_norm_length says of this rank's batch, so that scores depend
  // on who shares it; else by the model's own number.
  bool norm_by_batch = false;
  std::int64_t bucket_bytes = 1 << 20;  // of the dense gradients' sums
  // How ranks over GPUs reach each other.
  dist::DeviceLink link = dist::DeviceLink::kStaged;
  dist::WaitOptions wait;
  bool plan_only = false;  // memory is counted; the tables have no rows (embedding/planned_rows.h)
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

  // Collective; results are those of all ranks together, in the order of submission. The batch may
  // go when submit returns. At most kInFlight steps are pending.
  static constexpr std::int64_t kInFlight = 2;
  void submit(const Context& ctx, const model::RankingBatch& batch);
  RankingResult finish();
  std::int64_t pending() const { return submitted_ - finished_; }
  // Both, with no other step pending.
  RankingResult run(const Context& ctx, const model::RankingBatch& batch);

  std::int64_t steps_done() const { return steps_done_; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  const RankingTrainOptions& options() const { return options_; }
  model::RankingModel<T>& model() { return model_; }
  embedding::RowSource<T>& rows() { return rows_; }
  std::span<Tensor> first_moments() { return dense_.first_moments; }
  std::span<Tensor> second_moments() { return dense_.second_moments; }
  // Of the last step's targets on this rank, in the device's memory.
  Rows<const T> logits() const;
  std::int64_t num_rows() const { return feature_rows_.num_rows(); }  // distinct, of the last step
  PlannedBytes bytes(const Context& ctx) const;                       // but for the tables'

 private:
  // What a step leaves for the host, in flight until it is asked for.
  struct Outcome {
    RankingResult result;
    Tensor numbers;  // pinned where the device is a GPU
    Event sent;
  };
  // f64 in the device's memory: two StepScales (clipped and not), squares of the dense gradients
  // and of each table's, and losses of every task in every part.
  static constexpr std::int64_t kSquares = 8;
  double* number(std::int64_t place) { return numbers_.view<double, 1>().data + place; }
  ops::StepScale* dense_scale() { return reinterpret_cast<ops::StepScale*>(number(0)); }
  ops::StepScale* row_scale() { return reinterpret_cast<ops::StepScale*>(number(4)); }
  std::int64_t first_loss() const { return kSquares + 1 + std::ssize(touched_); }
  std::int64_t num_losses() const {
    return model::RankingInputs::kMostParts * options_.model.tasks;
  }

  void prepare(const Context& ctx, const model::RankingBatch& batch);
  void fetch(const Context& ctx);
  void compute(const Context& ctx, const model::RankingBatch& batch);
  void compute_part(const Context& ctx, const model::RankingPart& part, double norm_length,
                    const model::RankingRows<const T>& rows, const model::RankingRows<T>& drows,
                    double* losses);
  void return_rows(const Context& ctx);
  void update_dense(const Context& ctx);
  void update_rows(const Context& ctx);
  AdamWSettings settings_of(const AdamWSettings& given) const;
  std::unique_ptr<dist::Communicator> reach(const Context& ctx, dist::Communicator& world,
                                            const char* name) const;
  void make_reducer(const Context& ctx);

  RankingTrainOptions options_;
  std::unique_ptr<dist::Communicator> ranks_;                       // hosts
  std::unique_ptr<dist::Communicator> number_ranks_, dense_ranks_;  // devices
  model::RankingModel<T> model_;
  embedding::RowSource<T>& rows_;
  model::FeatureRows feature_rows_;
  model::RankingInputs inputs_;
  Feed task_feed_;
  DenseState dense_;
  std::unique_ptr<DenseReducer> reducer_;
  std::int64_t steps_done_ = 0, submitted_ = 0, finished_ = 0;
  std::array<Outcome, kInFlight> outcomes_;

  // Of the step under way.
  std::vector<embedding::TouchedRows> touched_;  // one a table
  std::unique_ptr<embedding::RowRequest> request_;
  Tensor table_rows_, table_gradients_;  // [U, E] of all tables, end to end; gradients in f32
  std::vector<embedding::StepRows<T>> fetched_;  // each table's part
  std::vector<Rows<const float>> returned_;
  std::vector<AdamWSettings> row_settings_;
  Tensor slots_, dslots_;    // [S, E], features as the model reads them
  Tensor logits_, dlogits_;  // [M, K], of the batch and of a part
  std::int64_t num_targets_ = 0;
  std::vector<double> weight_sums_;         // [K], of all ranks
  View<const double, 1> sent_weight_sums_;  // the same on the device
  View<const std::uint8_t, 1> sent_regression_;
  Tensor numbers_;
  RankingResult result_;
};

}  // namespace turbogr::train
