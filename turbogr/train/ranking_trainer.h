// Trains the ranking task: its steps (ranking_step.h) under a schedule (schedules.h).
//
//   RankingTrainer<float> trainer(ctx, world, options);
//   trainer.initialise(ctx);
//   const RankingResult result = trainer.run(ctx, batch);   // this rank's share, which may be
//   empty
//
//   trainer.submit(ctx, batch);                             // results may be asked for later
//   if (trainer.pending() == trainer.queue_length()) result = trainer.finish(ctx);
#pragma once

#include <cstdint>
#include <span>

#include "turbogr/core/context.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/train/ranking_step.h"
#include "turbogr/train/schedules.h"

namespace turbogr::train {

template <class T>  // float or bf16
class RankingTrainer {
 public:
  // `world` is used by nobody else meanwhile. All outlive the trainer. Collective.
  RankingTrainer(const Context& ctx, dist::Communicator& world, const RankingTrainOptions& options)
      : next_ctx_(next_step_context(ctx)),
        step_(ctx, next_ctx_, world, options),
        steps_(ctx, next_ctx_, world, step_, options.ranks, /*clips=*/false) {}
  void initialise(const Context& ctx) { step_.initialise(ctx); }
  void refresh(const Context& ctx) { step_.refresh(ctx); }  // after loading tensors

  // As ScheduledSteps'.
  void submit(const Context& ctx, const model::RankingBatch& batch, bool stop = false) {
    steps_.submit(ctx, batch, stop);
  }
  RankingResult finish(const Context& ctx) { return steps_.finish(ctx); }
  std::int64_t pending() const { return steps_.pending(); }
  std::int64_t queue_length() const { return steps_.queue_length(); }
  bool stop_asked() const { return steps_.stop_asked(); }
  RankingResult run(const Context& ctx, const model::RankingBatch& batch) {
    submit(ctx, batch);
    return finish(ctx);
  }

  std::int64_t steps_done() const { return steps_.steps_done(); }
  void set_steps_done(std::int64_t steps) { steps_.set_steps_done(steps); }
  const RankingTrainOptions& options() const { return step_.options(); }
  model::RankingModel<T>& model() { return step_.model(); }
  embedding::RowSource<T>& rows() { return step_.rows(); }
  StageTimes times() const { return step_.clock().times(); }
  std::span<Tensor> first_moments() { return step_.first_moments(); }
  std::span<Tensor> second_moments() { return step_.second_moments(); }
  Rows<const T> logits() const { return step_.logits(); }  // as RankingTrainStep's
  std::int64_t num_rows() const { return step_.num_rows(); }

  PlannedBytes planned_bytes(const Context& ctx) const {
    PlannedBytes bytes = step_.bytes(ctx);
    bytes += steps_.bytes();
    return bytes;
  }

 private:
  Context next_ctx_;
  RankingTrainStep<T> step_;
  ScheduledSteps<RankingTrainStep<T>> steps_;
};

}  // namespace turbogr::train
