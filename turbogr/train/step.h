// One training step of the retrieval task, the same for one rank or many, on a CPU or a GPU:
//
//   prepare       negatives are drawn, the ids of the step are known and find their rows
//   fetch         rows from wherever they are (embedding/row_source.h)
//   compute       forward, loss, backward; dense gradients are summed over ranks as they come
//   return_rows   gradients of rows, summed where the rows are
//   update_dense  how large all gradients are, whether they are finite, and the dense weights
//   update_rows
//   finish        the result, on its way to the host
//
// schedules.h says when they run. Nothing waits for a GPU, but for links that go through the host.
// A step whose loss or gradients are not finite changes nothing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/named_tensor.h"
#include "turbogr/data/batch.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/model/model.h"
#include "turbogr/ops/rows/update.h"
#include "turbogr/train/dense_reducer.h"
#include "turbogr/train/dense_state.h"
#include "turbogr/train/negative_sampler.h"
#include "turbogr/train/stage_clock.h"
#include "turbogr/train/step_in_flight.h"
#include "turbogr/train/step_inputs.h"
#include "turbogr/train/step_options.h"
#include "turbogr/train/token_rows.h"

namespace turbogr::train {

using embedding::Part;

template <class T>
class RetrievalStep {
 public:
  using Flight = StepInFlight<T>;
  using RowMemory = StepRowMemory<T>;
  using Input = std::span<const data::Batch>;
  using Result = StepResult;

  // `next` is the context of Lane::kNext, for work on a step while the one before it computes.
  // counts [num_items]: how often each item is a training target, for samplers that go by it and
  // for the cache of a table in host memory. All outlive the step. Collective.
  RetrievalStep(const Context& ctx, const Context& next, dist::Communicator& world,
                const RetrievalOptions& options, std::int64_t num_items,
                std::span<const std::int64_t> counts);
  void initialise(const Context& ctx);
  void refresh(const Context& ctx);  // after weights were loaded

  std::unique_ptr<RowMemory> make_memory(const Context& ctx) const;
  std::unique_ptr<Flight> make_flight(const Context& ctx, const Context& next) const;
  // With `keep`, of copies of the batches.
  void begin(Flight& step, Input batches, bool keep);

  // The stages of a step, in their order. `step` has its number, its batches and its memory.
  void prepare(const Context& ctx, Lane lane, StepInFlight<T>& step);
  void fetch(const Context& ctx, Lane lane, StepInFlight<T>& step);
  void compute(const Context& ctx, StepInFlight<T>& step);
  void return_rows(const Context& ctx, Lane lane, StepInFlight<T>& step, Part part);
  void update_dense(const Context& ctx, StepInFlight<T>& step);
  void update_rows(const Context& ctx, Lane lane, StepInFlight<T>& step, Part part);
  void finish(const Context& ctx, StepInFlight<T>& step);
  static StepResult result_of(StepInFlight<T>& step);  // waits for it

  const RetrievalOptions& options() const { return options_; }
  std::int64_t num_items() const { return num_items_; }
  model::Model<T>& model() { return model_; }
  const model::Model<T>& model() const { return model_; }
  embedding::RowSource<T>& rows() { return *rows_; }
  const embedding::RowSource<T>& rows() const { return *rows_; }
  StepInputs<T>& inputs() { return inputs_; }
  StageClock& clock() { return clock_; }
  const StageClock& clock() const { return clock_; }
  dist::Communicator& world() { return world_; }
  std::vector<NamedTensor> optimiser_tensors();  // of the dense weights, for checkpoints

  PlannedBytes bytes(const Context& ctx) const;  // of all but steps on their way

 private:
  struct Positives {
    View<const std::int64_t, 1> distinct;
    std::int64_t count = 0;  // with repeats
  };
  Positives gather_positives(Lane lane, StepInFlight<T>& step);
  void draw(const Context& host, StepInFlight<T>& step, const std::optional<Positives>& positives);
  void find_features(const Context& ctx, StepInFlight<T>& step);
  void forward_backward(const Context& ctx, StepInFlight<T>& step, const BatchInputs<T>& inputs,
                        double weight, double* loss_sum, bool first, bool last);

  RetrievalOptions options_;
  std::int64_t num_items_;
  dist::Communicator& world_;
  // A communicator each for what may run at the same time: hosts', and over the devices' memory.
  std::array<std::unique_ptr<dist::Communicator>, 2> hosts_, devices_;
  std::unique_ptr<dist::Communicator> dense_ranks_;
  model::Model<T> model_;
  std::unique_ptr<embedding::RowSource<T>> rows_;
  NegativeSampler sampler_;
  StepInputs<T> inputs_;
  DenseState dense_;
  bool update_rounds_ = false;  // the update keeps the model's rounded weights, too
  std::unique_ptr<DenseReducer> reducer_;
  std::vector<std::int64_t> blocks_by_layers_;  // gradient blocks final after so many layers

  TokenRows<T> tokens_;
  std::array<std::vector<AdamWSettings>, 2> row_settings_;  // of a lane's step: one a table
  Tensor loss_, log_sum_exp_, dloss_;
  StageClock clock_;
};

}  // namespace turbogr::train
