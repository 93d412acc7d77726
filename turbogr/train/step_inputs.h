// How batches get to the device of a step: what its forward pass, loss and row gradients read of
// them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/feed.h"
#include "turbogr/data/batch.h"
#include "turbogr/data/sequence_parts.h"
#include "turbogr/model/model.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/softmax/sampled_softmax.h"
#include "turbogr/train/negative_sampler.h"
#include "turbogr/train/step_in_flight.h"
#include "turbogr/train/token_order.h"

namespace turbogr::train {

// A batch as the device reads it.
template <class T>
struct BatchInputs {
  std::size_t index = 0;  // of the batch in its step
  model::StepInput model;
  View<const std::int64_t, 1> places;       // of the inputs among the step's rows
  ops::IdGroups groups;                     // the same, brought together
  ops::SampledSoftmaxInputs<T> candidates;  // but for the query
  // With targets: which tokens predict, and every token's weight in the loss. Else empty.
  View<const std::int64_t, 1> predicting;
  View<const float, 1> weights;
  // With tokens before the history (eval/retrieval_features.h): the slot of each token, the token
  // of each slot, and each token's event, of one before the history the number of events. Else
  // empty.
  View<const std::int64_t, 1> slots_of_tokens, tokens_of_slots, events_of_tokens;
};

template <class T>
class StepInputs {
 public:
  StepInputs(const Context& ctx, const RetrievalOptions& options, std::int64_t num_items);

  // A step begins with the one and ends with the other.
  void begin() { feed_.begin(); }
  void end(const Context& ctx) { feed_.end(ctx); }

  // What all batches of the step share: the rows that compete, and what their logits are corrected
  // by.
  ops::SampledSoftmaxInputs<T> candidates(const Context& ctx, const StepInFlight<T>& step,
                                          const NegativeSampler& sampler);
  // Of batch `index`, whose tokens that predict weigh `weight` in the loss.
  BatchInputs<T> batch(const Context& ctx, const StepInFlight<T>& step, std::size_t index,
                       double weight, const ops::SampledSoftmaxInputs<T>& candidates);

  std::int64_t predicting(const data::Batch& batch);  // tokens of it that the loss counts
  PlannedBytes bytes() const;

 private:
  // Places of the batch's negatives among the step's rows, on the device, as all that was sent is
  // afterwards.
  View<const std::int32_t, 1> negative_places(const Context& ctx, const StepInFlight<T>& step,
                                              std::size_t index, const BatchInputs<T>& inputs);
  void add_prefix(const Context& ctx, const data::Batch& batch, BatchInputs<T>& inputs);

  RetrievalOptions options_;
  data::SequenceMarks marks_;  // of the batch last looked at
  TokenOrder token_order_;
  Feed feed_;
  View<const std::int32_t, 1> place_of_;  // of each candidate of the step's uniform draws
};

}  // namespace turbogr::train
