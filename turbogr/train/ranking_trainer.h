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

#include "turbogr/core/context.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/train/ranking_step.h"
#include "turbogr/train/trainer.h"

namespace turbogr::train {

template <class T>  // float or bf16
class RankingTrainer : public Trainer<RankingTrainStep<T>> {
 public:
  // `world` is used by nobody else meanwhile. All outlive the trainer. Collective.
  RankingTrainer(const Context& ctx, dist::Communicator& world, const RankingTrainOptions& options)
      : Trainer<RankingTrainStep<T>>(ctx, &world, options.ranks, /*clips=*/false, options) {}

  RankingResult run(const Context& ctx, const model::RankingBatch& batch) {
    this->submit(ctx, batch);
    return this->finish(ctx);
  }

  Rows<const T> logits() const { return this->stages().logits(); }  // as RankingTrainStep's
  std::int64_t num_rows() const { return this->stages().num_rows(); }
};

}  // namespace turbogr::train
