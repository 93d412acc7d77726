#include "turbogr/train/schedules.h"

#include <algorithm>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/train/ranking_step.h"
#include "turbogr/train/step.h"

namespace turbogr::train {
namespace {

StepSchedule schedule_of(const RankOptions& ranks) {
  TGR_CHECK(ranks.delay == 0 || ranks.delay == 1, "a delay of ", ranks.delay, " steps; use 0 or 1");
  TGR_ASSERT(ranks.replicas == embedding::ReplicaMode::kExact ||
             ranks.schedule == StepSchedule::kSerial ||
             ranks.schedule == StepSchedule::kOverlap);  // run/combinations.cc has refused others
  const bool late = ranks.schedule == StepSchedule::kSemiAsync && ranks.delay == 0;
  return late ? StepSchedule::kOverlap : ranks.schedule;
}

// Rows of steps on their way at a time.
std::size_t row_memories(StepSchedule schedule) {
  return schedule == StepSchedule::kSerial ? 1 : schedule == StepSchedule::kOverlap ? 2 : 3;
}

}  // namespace

ContextOptions next_step_context(const Context& ctx) {
  return {.device = ctx.device(),
          .threads = ctx.device() == Device::kCuda ? ctx.host().threads() : 1,
          .simd = ctx.simd(),
          .deterministic = ctx.deterministic(),
          .trace = ctx.trace()};
}

template <class Step>
class ScheduledSteps<Step>::Stages {
 public:
  Stages(ScheduledSteps& steps, const Context& ctx) : steps_(steps), ctx_(ctx) {}

  void prepare(Lane lane, Flight& step) { run().prepare(on(lane), lane, step); }
  void fetch(Lane lane, Flight& step) { run().fetch(on(lane), lane, step); }
  void compute(Flight& step) {
    steps_.stop_asked_ = steps_.stop_asked_ || step.stop;
    run().compute(ctx_, step);
  }
  void return_rows(Lane lane, Flight& step, Part part) {
    run().return_rows(on(lane), lane, step, part);
  }
  void update_dense(Flight& step) { run().update_dense(ctx_, step); }
  void update_rows(Lane lane, Flight& step, Part part) {
    run().update_rows(on(lane), lane, step, part);
  }
  void finish(Lane lane, Flight& step) { run().finish(on(lane), step); }

  bool fetches_ahead() { return run().rows().fetches_ahead(); }
  void plan_refresh(Flight& next, Flight& current, bool split) {
    const Context& ahead = on(Lane::kNext);
    const auto scope = run().clock().enter(ahead, stages::kPlan, Lane::kNext);
    run().rows().plan_refresh(ahead, Lane::kNext, *next.request, *current.request, split);
  }
  void refresh(Flight& next) {
    const auto scope = run().clock().enter(ctx_, stages::kRefresh, Lane::kThis);
    run().rows().refresh(ctx_, Lane::kThis, *next.request, next.rows());
  }

  // With stages of its own: an exception may end these before the worker ends.
  template <class Work>
  void start_ahead(Work work) {
    steps_.computed_.record(ctx_);
    steps_.worker_->start([ahead = *this, work]() mutable {
      ScheduledSteps& steps = ahead.steps_;
      bind_thread(steps.next_ctx_);
      steps.computed_.wait_on(steps.next_ctx_);
      work(ahead);
      steps.prepared_.record(steps.next_ctx_);
    });
  }
  void join() {
    const auto scope = run().clock().enter(ctx_, stages::kJoin, Lane::kThis);
    steps_.worker_->join();
    steps_.prepared_.wait_on(ctx_);
  }

 private:
  Step& run() { return steps_.step_; }
  const Context& on(Lane lane) const { return lane == Lane::kThis ? ctx_ : steps_.next_ctx_; }

  ScheduledSteps& steps_;
  const Context& ctx_;
};

template <class Step>
ScheduledSteps<Step>::ScheduledSteps(const Context& ctx, const Context& next,
                                     dist::Communicator& world, Step& step,
                                     const RankOptions& ranks, bool clips)
    : world_(world),
      next_ctx_(next),
      step_(step),
      schedule_(schedule_of(ranks)),
      order_({schedule_, clips, ranks.warmup}),
      computed_(ctx),
      prepared_(ctx) {
  for (std::size_t i = 0; i < row_memories(schedule_); ++i) {
    memory_.push_back(step.make_memory(ctx));
  }
  // A GPU's host prepares a step while the rows of the one before are in use: it needs nothing of
  // them.
  const std::size_t steps =
      ctx.device() == Device::kCuda ? std::max<std::size_t>(memory_.size(), 2) : memory_.size();
  for (std::size_t i = 0; i < steps; ++i) {
    steps_.push_back(step.make_flight(ctx, next));
    steps_.back()->memory = memory_[i % memory_.size()].get();
  }
  if (schedule_ != StepSchedule::kSerial) worker_ = std::make_unique<BackgroundWorker>();
}

template <class Step>
ScheduledSteps<Step>::~ScheduledSteps() = default;

// An exception here must free the other ranks, and this rank's own worker, before the stack
// unwinds.
template <class Step>
template <class Work>
void ScheduledSteps<Step>::guarded(Work&& work) {
  try {
    work();
  } catch (const std::exception& error) {
    world_.abort(error.what());
    throw;
  }
}

template <class Step>
typename Step::Flight& ScheduledSteps<Step>::begin_step(const Input& input, bool stop) {
  TGR_CHECK(pending() < queue_length(), "a step was submitted while ", pending(),
            " are on their way; finish one first");
  Flight& step = *steps_[static_cast<std::size_t>(steps_done_ % queue_length())];
  step_.begin(step, input, /*keep=*/schedule_ != StepSchedule::kSerial);
  step.step = steps_done_;
  step.stop = stop;
  step.rows_late = step.done = false;
  return step;
}

template <class Step>
void ScheduledSteps<Step>::submit(const Context& ctx, const Input& input, bool stop) {
  Flight& step = begin_step(input, stop);
  Stages stages(*this, ctx);
  guarded([&] {
    if (order_.holds_step()) {
      pending_.push_back(&step);
      return order_.advance(stages, steps_done_, step);
    }
    stages.prepare(Lane::kThis, step);
    stages.fetch(Lane::kThis, step);
    pending_.push_back(&step);
    if (order_.serial()) {
      order_.whole_step(stages, step);
    } else {
      order_.hold(step);
    }
  });
  steps_done_ = step.step + 1;
}

template <class Step>
typename Step::Result ScheduledSteps<Step>::finish(const Context& ctx) {
  TGR_CHECK(!pending_.empty(), "no step was submitted; there is nothing to finish");
  Flight& step = *pending_.front();
  if (!step.done) {
    guarded([&] {
      Stages stages(*this, ctx);
      order_.drain(stages);
    });
  }
  const Result result = Step::result_of(step);
  pending_.pop_front();
  if (pending_.empty()) {
    step_.rows().end_steps(ctx);
    step_.clock().collect();
  }
  return result;
}

template <class Step>
PlannedBytes ScheduledSteps<Step>::bytes() const {
  PlannedBytes bytes;
  for (const auto& memory : memory_) bytes += memory->bytes();
  for (const auto& step : steps_) bytes += step->bytes();
  return bytes;
}

template class ScheduledSteps<RetrievalStep<float>>;
template class ScheduledSteps<RetrievalStep<bf16>>;
template class ScheduledSteps<RankingTrainStep<float>>;
template class ScheduledSteps<RankingTrainStep<bf16>>;

}  // namespace turbogr::train
