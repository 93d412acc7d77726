// When the stages of training steps (step.h) run:
//
//   serial           one after the other
//   overlap          the next step draws and exchanges ids while this one computes
//   exact_prefetch   it fetches rows, too; those both steps touch return their gradients first and
//                    are fetched again after the update, the others' return while the next computes
//   semi_async       it fetches rows, too, and rows are updated while the next step computes: what
//                    a step reads misses the update just before it (after `warmup` steps)
//
// The first three give the same bits.
//
//   RetrievalTrainer<float> trainer(ctx, options, num_items);
//   StepResult result = trainer.step(ctx, batches);      // one batch, or several to accumulate
//
// On a GPU nothing waits for the device but the reading of results, which may come late: the host
// draws one step while the device computes the one before.
//
//   trainer.submit(ctx, batches);
//   if (trainer.pending() == trainer.queue_length()) result = trainer.finish(ctx);
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "turbogr/core/background_worker.h"
#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/named_tensor.h"
#include "turbogr/data/batch.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/train/step.h"
#include "turbogr/train/step_in_flight.h"
#include "turbogr/train/step_options.h"
#include "turbogr/train/step_order.h"

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
  ~RetrievalTrainer();
  void initialise(const Context& ctx) { step_.initialise(ctx); }
  void refresh(const Context& ctx) { step_.refresh(ctx); }  // after loading tensors

  // Queues one update from its batches, at most options.accumulate of them: this rank's share of
  // the step, which may be none while others have some. `stop` is this rank's wish to end. The
  // batches are free again when it returns.
  void submit(const Context& ctx, std::span<const data::Batch> batches, bool stop = false);
  // Waits for the oldest step submitted and not finished; results are those of all ranks together.
  // Once none is left, the table is up to date.
  StepResult finish(const Context& ctx);
  std::int64_t pending() const { return std::ssize(pending_); }
  std::int64_t queue_length() const { return std::ssize(steps_); }  // submitted at a time, at most
  bool stop_asked() const { return stop_asked_; }  // some rank's wish, known to all alike

  StepResult step(const Context& ctx, std::span<const data::Batch> batches) {
    submit(ctx, batches);
    return finish(ctx);
  }

  std::int64_t steps_done() const { return steps_done_; }  // submitted ones, too
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
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
  PlannedBytes step_bytes() const;  // of it, steps on their way
  typename embedding::RowSource<T>::LinkBytes link_bytes() { return rows().link_bytes(); }

 private:
  using Flight = StepInFlight<T>;

  class Stages;  // step_'s, each on its lane's stream and thread

  Flight& begin_step(std::span<const data::Batch> batches, bool stop);
  template <class Work>
  void guarded(Work&& work);

  // `world` null: `alone`.
  RetrievalTrainer(const Context& ctx, std::unique_ptr<dist::Communicator> alone,
                   dist::Communicator* world, const RetrievalOptions& options,
                   std::int64_t num_items, std::span<const std::int64_t> counts);

  std::unique_ptr<dist::Communicator> alone_;
  dist::Communicator& world_;
  StepSchedule schedule_;
  Context next_ctx_;  // of work on the next step: a thread, on a GPU all of the host's and a stream
  RetrievalStep<T> step_;

  std::vector<std::unique_ptr<StepRowMemory<T>>> memory_;
  std::vector<std::unique_ptr<Flight>> steps_;
  std::deque<Flight*> pending_;  // submitted and not finished, oldest first
  StepOrder<Flight> order_;
  bool stop_asked_ = false;
  std::int64_t steps_done_ = 0;
  Event computed_, prepared_;                 // points the other lane's stream waits for
  std::unique_ptr<BackgroundWorker> worker_;  // last: ends first
};

}  // namespace turbogr::train
