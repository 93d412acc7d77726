// One training step of the ranking task, the same for one rank or many, on a CPU or a GPU:
//
//   prepare       the ids of all features find their rows; how many targets and how much weight all
//                 ranks have together
//   fetch         rows of all tables, from wherever they are (embedding/row_source.h)
//   compute       features from rows, forward, loss, backward, gradients of rows; dense gradients
//                 are summed over ranks as they come
//   return_rows   gradients of rows, summed where the rows are
//   update_dense  clipping, whether all is finite, and the dense weights
//   update_rows   row-wise, never clipped
//   finish        the result, on its way to the host
//
// schedules.h says when they run. The loss, and so every gradient, is that of the global batch:
// each rank divides by the weights of all. A step whose loss or gradients are not finite changes
// nothing. A batch may be larger than what the model takes at a time (options.memory): its parts go
// through the model one after the other, and their gradients add up.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/feed.h"
#include "turbogr/core/named_tensor.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/tensor.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/model/ranking_batch.h"
#include "turbogr/model/ranking_inputs.h"
#include "turbogr/model/ranking_model.h"
#include "turbogr/train/dense_reducer.h"
#include "turbogr/train/dense_state.h"
#include "turbogr/train/dense_tensors.h"
#include "turbogr/train/ranking_flight.h"
#include "turbogr/train/ranking_train_options.h"
#include "turbogr/train/stage_clock.h"

namespace turbogr::train {

using embedding::Part;

template <class T>  // float or bf16
class RankingTrainStep {
 public:
  using Flight = RankingFlight<T>;
  using RowMemory = RankingRowMemory;
  using Input = model::RankingBatch;
  using Result = RankingResult;

  // `next` is the context of Lane::kNext, for work on a step while the one before it computes. All
  // outlive the step. Collective.
  RankingTrainStep(const Context& ctx, const Context& next, dist::Communicator& world,
                   const RankingTrainOptions& options);
  void initialise(const Context& ctx);
  void refresh(const Context& ctx);  // after weights were loaded

  std::unique_ptr<RowMemory> make_memory(const Context& ctx) const;
  std::unique_ptr<Flight> make_flight(const Context& ctx, const Context& next) const;
  // With `keep`, of a copy of the batch.
  void begin(Flight& step, const model::RankingBatch& batch, bool keep);

  // The stages of a step, in their order. `step` has its number, its batch and its memory.
  void prepare(const Context& ctx, Lane lane, Flight& step);
  void fetch(const Context& ctx, Lane lane, Flight& step);
  void compute(const Context& ctx, Flight& step);
  void return_rows(const Context& ctx, Lane lane, Flight& step, Part part);
  void update_dense(const Context& ctx, Flight& step);
  void update_rows(const Context& ctx, Lane lane, Flight& step, Part part);
  void finish(const Context& ctx, Flight& step);
  static RankingResult result_of(Flight& step);  // waits for it

  const RankingTrainOptions& options() const { return options_; }
  model::RankingModel<T>& model() { return model_; }
  embedding::RowSource<T>& rows() { return *rows_; }
  StageClock& clock() { return clock_; }
  const StageClock& clock() const { return clock_; }
  std::vector<NamedTensor> optimiser_tensors() {  // of the dense weights, for checkpoints
    return moment_tensors(model_.parameters(), dense_.first_moments, dense_.second_moments);
  }
  // Of the targets that were computed last on this rank, in the device's memory.
  Rows<const T> logits() const;
  std::int64_t num_rows() const { return num_rows_; }  // distinct, of the same step

  PlannedBytes bytes(const Context& ctx) const;  // of all but steps on their way

 private:
  void compute_part(const Context& ctx, const Flight& step, const model::RankingPart& part,
                    const model::RankingRows<const T>& rows, const model::RankingRows<T>& drows,
                    double* losses, bool last);
  void check_tables() const;

  RankingTrainOptions options_;
  dist::Communicator& world_;
  // A communicator each for what may run at the same time: hosts', and over the devices' memory.
  std::array<std::unique_ptr<dist::Communicator>, 2> hosts_;
  std::unique_ptr<dist::Communicator> number_ranks_, dense_ranks_;
  model::RankingModel<T> model_;
  std::unique_ptr<embedding::RowSource<T>> rows_;
  model::RankingInputs inputs_;
  Feed task_feed_;
  DenseState dense_;
  std::unique_ptr<DenseReducer> reducer_;
  std::int64_t most_rows_ = 0;                              // of the largest batch, all tables'
  std::vector<std::int64_t> blocks_by_layers_;              // gradients final after so many layers
  std::array<std::vector<AdamWSettings>, 2> row_settings_;  // of a lane's step: one a table

  // Of the step that computes.
  Tensor slots_, dslots_;    // [S, E], features as the model reads them
  Tensor logits_, dlogits_;  // [M, K], of the batch and of a part
  std::int64_t num_targets_ = 0, num_rows_ = 0;
  double norm_length_ = 0;
  View<const double, 1> sent_weight_sums_;  // where the device reads them
  View<const std::uint8_t, 1> sent_regression_;
  StageClock clock_;
};

}  // namespace turbogr::train
