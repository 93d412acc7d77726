// When the stages of training steps (step.h, ranking_step.h) run:
//
//   serial           one after the other
//   overlap          the next step finds and exchanges its ids while this one computes
//   exact_prefetch   it fetches rows, too; those both steps touch return their gradients first and
//                    are fetched again after the update, the others' return while the next computes
//   semi_async       it fetches rows, too, and rows are updated while the next step computes: what
//                    a step reads misses the update just before it (after `warmup` steps)
//
// The first three give the same bits. Trainers (retrieval_trainer.h, ranking_trainer.h) are a
// task's step and this.
//
//   ScheduledSteps<Step> steps(ctx, next, world, step, options);
//   steps.submit(ctx, input);
//   if (steps.pending() == steps.queue_length()) result = steps.finish(ctx);
//
// On a GPU nothing waits for the device but the reading of results, which may come late: the host
// prepares one step while the device computes the one before.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "turbogr/core/background_worker.h"
#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/train/step_options.h"
#include "turbogr/train/step_order.h"

namespace turbogr::train {

// Of work on the next step while one computes: a thread, on a GPU all of the host's and a stream.
ContextOptions next_step_context(const Context& ctx);

// Step has the stages, and
//   Flight, RowMemory, Input, Result      a step on its way (flight.h), its rows, what it is made
//   of make_memory(ctx), make_flight(ctx, next) begin(flight, input, keep)            with `keep`,
//   of a copy of the input rows(), clock(), result_of(flight)
template <class Step>
class ScheduledSteps {
 public:
  using Input = typename Step::Input;
  using Result = typename Step::Result;

  // `clips`: the norm that gradients are clipped by has those of rows in it. All outlive it.
  ScheduledSteps(const Context& ctx, const Context& next, dist::Communicator& world, Step& step,
                 const RankOptions& ranks, bool clips);
  ~ScheduledSteps();

  // Queues one update from this rank's share of the step, which may be empty while others have
  // some. `stop` is this rank's wish to end. The input is free again when it returns.
  void submit(const Context& ctx, const Input& input, bool stop = false);
  // Waits for the oldest step submitted and not finished; results are those of all ranks together.
  // Once none is left, the tables are up to date.
  Result finish(const Context& ctx);
  std::int64_t pending() const { return std::ssize(pending_); }
  std::int64_t queue_length() const { return std::ssize(steps_); }  // submitted at a time, at most
  bool stop_asked() const { return stop_asked_; }  // some rank's wish, known to all alike

  std::int64_t steps_done() const { return steps_done_; }  // submitted ones, too
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  PlannedBytes bytes() const;  // of steps on their way

 private:
  using Flight = typename Step::Flight;

  class Stages;  // step_'s, each on its lane's stream and thread

  Flight& begin_step(const Input& input, bool stop);
  template <class Work>
  void guarded(Work&& work);

  dist::Communicator& world_;
  const Context& next_ctx_;
  Step& step_;
  StepSchedule schedule_;
  std::vector<std::unique_ptr<typename Step::RowMemory>> memory_;
  std::vector<std::unique_ptr<Flight>> steps_;
  std::deque<Flight*> pending_;  // submitted and not finished, oldest first
  StepOrder<Flight> order_;
  bool stop_asked_ = false;
  std::int64_t steps_done_ = 0;
  Event computed_, prepared_;                 // points the other lane's stream waits for
  std::unique_ptr<BackgroundWorker> worker_;  // last: ends first
};

}  // namespace turbogr::train
