// Trains the retrieval task: its steps (step.h) under a schedule (schedules.h).
//
//   RetrievalTrainer<float> trainer(ctx, options, num_items);
//   StepResult result = trainer.step(ctx, batches);      // one batch, or several to accumulate
//
//   trainer.submit(ctx, batches);                        // results may be asked for later
//   if (trainer.pending() == trainer.queue_length()) result = trainer.finish(ctx);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/named_tensor.h"
#include "turbogr/data/batch.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/train/schedules.h"
#include "turbogr/train/step.h"
#include "turbogr/train/step_options.h"

namespace turbogr::train {

template <class T>
class RetrievalTrainer {
 public:
  // Alone, or as one of the ranks of `world`, which is used by nobody else meanwhile. counts
  // [num_items]: how often each item is a training target, for samplers that go by it. Collective;
  // all outlive the trainer.
  RetrievalTrainer(const Context& ctx, const RetrievalOptions& options, std::int64_t num_items,
                   std::span<const std::int64_t> counts = {});
  RetrievalTrainer(const Context& ctx, dist::Communicator& world, const RetrievalOptions& options,
                   std::int64_t num_items, std::span<const std::int64_t> counts = {});
  void initialise(const Context& ctx) { step_.initialise(ctx); }
  void refresh(const Context& ctx) { step_.refresh(ctx); }  // after loading tensors

  // As ScheduledSteps': one update from at most options.accumulate batches.
  void submit(const Context& ctx, std::span<const data::Batch> batches, bool stop = false) {
    steps_.submit(ctx, batches, stop);
  }
  StepResult finish(const Context& ctx) { return steps_.finish(ctx); }
  std::int64_t pending() const { return steps_.pending(); }
  std::int64_t queue_length() const { return steps_.queue_length(); }
  bool stop_asked() const { return steps_.stop_asked(); }
  StepResult step(const Context& ctx, std::span<const data::Batch> batches) {
    submit(ctx, batches);
    return finish(ctx);
  }

  std::int64_t steps_done() const { return steps_.steps_done(); }
  void set_steps_done(std::int64_t steps) { steps_.set_steps_done(steps); }
  const RetrievalOptions& options() const { return step_.options(); }
  std::int64_t num_items() const { return step_.num_items(); }
  model::Model<T>& model() { return step_.model(); }
  embedding::RowSource<T>& rows() { return step_.rows(); }
  StageTimes times() const { return step_.clock().times(); }

  // This rank's part of the item table: all of it where one rank holds it.
  embedding::ItemTable& table() { return rows().shard(0); }

  // Dense weights and their optimiser's state by name, for checkpoints.
  std::vector<NamedTensor> model_tensors();
  std::vector<NamedTensor> optimiser_tensors();

  // All that training takes, the copies of weights that initialise makes included.
  PlannedBytes planned_bytes(const Context& ctx) const;
  PlannedBytes step_bytes() const { return steps_.bytes(); }  // of it, steps on their way
  typename embedding::RowSource<T>::LinkBytes link_bytes() { return rows().link_bytes(); }

 private:
  // `world` null: `alone`.
  RetrievalTrainer(const Context& ctx, std::unique_ptr<dist::Communicator> alone,
                   dist::Communicator* world, const RetrievalOptions& options,
                   std::int64_t num_items, std::span<const std::int64_t> counts);

  std::unique_ptr<dist::Communicator> alone_;
  dist::Communicator& world_;
  Context next_ctx_;
  RetrievalStep<T> step_;
  ScheduledSteps<RetrievalStep<T>> steps_;
};

}  // namespace turbogr::train
