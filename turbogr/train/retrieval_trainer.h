// Trains the retrieval task: its steps (step.h) under a schedule (schedules.h).
//
//   RetrievalTrainer<float> trainer(ctx, options, num_items);
//   StepResult result = trainer.step(ctx, batches);      // one batch, or several to accumulate
//
//   trainer.submit(ctx, batches);                        // results may be asked for later
//   if (trainer.pending() == trainer.queue_length()) result = trainer.finish(ctx);
#pragma once

#include <cstdint>
#include <span>

#include "turbogr/core/context.h"
#include "turbogr/data/batch.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/train/step.h"
#include "turbogr/train/step_options.h"
#include "turbogr/train/trainer.h"

namespace turbogr::train {

template <class T>
class RetrievalTrainer : public Trainer<RetrievalStep<T>> {
  using Base = Trainer<RetrievalStep<T>>;

 public:
  // Alone, or as one of the ranks of `world`, which is used by nobody else meanwhile. counts
  // [num_items]: how often each item is a training target, for samplers that go by it. Collective;
  // all outlive the trainer.
  RetrievalTrainer(const Context& ctx, const RetrievalOptions& options, std::int64_t num_items,
                   std::span<const std::int64_t> counts = {})
      : Base(ctx, nullptr, options.ranks, options.clip != 0, options, num_items, counts) {}
  RetrievalTrainer(const Context& ctx, dist::Communicator& world, const RetrievalOptions& options,
                   std::int64_t num_items, std::span<const std::int64_t> counts = {})
      : Base(ctx, &world, options.ranks, options.clip != 0, options, num_items, counts) {}

  // One update from at most options.accumulate batches.
  StepResult step(const Context& ctx, std::span<const data::Batch> batches) {
    this->submit(ctx, batches);
    return this->finish(ctx);
  }

  std::int64_t num_items() const { return this->stages().num_items(); }
  // This rank's part of the item table: all of it where one rank holds it.
  embedding::ItemTable& table() { return this->rows().shard(0); }
  auto link_bytes() { return this->rows().link_bytes(); }
};

}  // namespace turbogr::train
