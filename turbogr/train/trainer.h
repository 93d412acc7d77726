// A task's step (step.h, ranking_step.h) under its schedule (schedules.h): what the trainers of
// both tasks share.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/named_tensor.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/train/dense_tensors.h"
#include "turbogr/train/schedules.h"
#include "turbogr/train/stage_clock.h"
#include "turbogr/train/step_options.h"

namespace turbogr::train {

template <class Step>
class Trainer {
 public:
  using Input = typename Step::Input;
  using Result = typename Step::Result;

  void initialise(const Context& ctx) { step_.initialise(ctx); }
  void refresh(const Context& ctx) { step_.refresh(ctx); }  // after loading tensors

  // As ScheduledSteps'.
  void submit(const Context& ctx, const Input& input, bool stop = false) {
    steps_.submit(ctx, input, stop);
  }
  Result finish(const Context& ctx) { return steps_.finish(ctx); }
  std::int64_t pending() const { return steps_.pending(); }
  std::int64_t queue_length() const { return steps_.queue_length(); }
  bool stop_asked() const { return steps_.stop_asked(); }
  std::int64_t steps_done() const { return steps_.steps_done(); }
  void set_steps_done(std::int64_t steps) { steps_.set_steps_done(steps); }

  const auto& options() const { return step_.options(); }
  auto& model() { return step_.model(); }
  auto& rows() { return step_.rows(); }
  StageTimes times() const { return step_.clock().times(); }

  // Dense weights and their optimiser's state by name, for checkpoints.
  std::vector<NamedTensor> model_tensors() { return weight_tensors(model().parameters()); }
  std::vector<NamedTensor> optimiser_tensors() { return step_.optimiser_tensors(); }

  // All that training takes, the copies of weights that initialise makes included.
  PlannedBytes planned_bytes(const Context& ctx) const {
    PlannedBytes bytes = step_.bytes(ctx);
    bytes += step_bytes();
    return bytes;
  }
  PlannedBytes step_bytes() const { return steps_.bytes(); }  // of it, steps on their way

 protected:
  // As one of the ranks of `world`, or alone where it is null.
  template <class... Args>
  Trainer(const Context& ctx, dist::Communicator* world, const RankOptions& ranks, bool clips,
          const Args&... args)
      : alone_(world == nullptr ? dist::make_self() : nullptr),
        world_(world == nullptr ? *alone_ : *world),
        next_ctx_(next_step_context(ctx)),
        step_(ctx, next_ctx_, world_, args...),
        steps_(ctx, next_ctx_, world_, step_, ranks, clips) {}

  const Step& stages() const { return step_; }

 private:
  std::unique_ptr<dist::Communicator> alone_;
  dist::Communicator& world_;
  Context next_ctx_;
  Step step_;
  ScheduledSteps<Step> steps_;
};

}  // namespace turbogr::train
