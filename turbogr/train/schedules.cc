#include "turbogr/train/schedules.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/train/dense_tensors.h"

namespace turbogr::train {
namespace {

using data::Batch;

StepSchedule schedule_of(const RankOptions& ranks) {
  TGR_CHECK(ranks.delay == 0 || ranks.delay == 1, "a delay of ", ranks.delay, " steps; use 0 or 1");
  TGR_CHECK(ranks.replicas == embedding::ReplicaMode::kExact ||
                ranks.schedule == StepSchedule::kSerial || ranks.schedule == StepSchedule::kOverlap,
            "averaged replicas change every row now and then, which rows fetched ahead would miss; "
            "use dist.replicas = \"exact\", or train.schedule = \"serial\" or \"overlap\"");
  const bool late = ranks.schedule == StepSchedule::kSemiAsync && ranks.delay == 0;
  return late ? StepSchedule::kOverlap : ranks.schedule;
}

// Rows of steps on their way at a time.
std::size_t row_memories(StepSchedule schedule) {
  return schedule == StepSchedule::kSerial ? 1 : schedule == StepSchedule::kOverlap ? 2 : 3;
}

ContextOptions next_context(const Context& ctx) {
  return {.device = ctx.device(),
          .threads = ctx.device() == Device::kCuda ? ctx.host().threads() : 1,
          .simd = ctx.simd(),
          .deterministic = ctx.deterministic(),
          .trace = ctx.trace()};
}

}  // namespace

template <class T>
class RetrievalTrainer<T>::Stages {
 public:
  Stages(RetrievalTrainer& trainer, const Context& ctx) : trainer_(trainer), ctx_(ctx) {}

  void prepare(Lane lane, Flight& step) { run().prepare(on(lane), lane, step); }
  void fetch(Lane lane, Flight& step) { run().fetch(on(lane), lane, step); }
  void compute(Flight& step) {
    trainer_.stop_asked_ = trainer_.stop_asked_ || step.stop;
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
    trainer_.computed_.record(ctx_);
    trainer_.worker_->start([ahead = *this, work]() mutable {
      RetrievalTrainer& trainer = ahead.trainer_;
      bind_thread(trainer.next_ctx_);
      trainer.computed_.wait_on(trainer.next_ctx_);
      work(ahead);
      trainer.prepared_.record(trainer.next_ctx_);
    });
  }
  void join() {
    const auto scope = run().clock().enter(ctx_, stages::kJoin, Lane::kThis);
    trainer_.worker_->join();
    trainer_.prepared_.wait_on(ctx_);
  }

 private:
  RetrievalStep<T>& run() { return trainer_.step_; }
  const Context& on(Lane lane) const { return lane == Lane::kThis ? ctx_ : trainer_.next_ctx_; }

  RetrievalTrainer& trainer_;
  const Context& ctx_;
};

template <class T>
RetrievalTrainer<T>::RetrievalTrainer(const Context& ctx, const RetrievalOptions& options,
                                      std::int64_t num_items, std::span<const std::int64_t> counts)
    : RetrievalTrainer(ctx, dist::make_self(), nullptr, options, num_items, counts) {}

template <class T>
RetrievalTrainer<T>::RetrievalTrainer(const Context& ctx, dist::Communicator& world,
                                      const RetrievalOptions& options, std::int64_t num_items,
                                      std::span<const std::int64_t> counts)
    : RetrievalTrainer(ctx, nullptr, &world, options, num_items, counts) {}

template <class T>
RetrievalTrainer<T>::RetrievalTrainer(const Context& ctx, std::unique_ptr<dist::Communicator> alone,
                                      dist::Communicator* world, const RetrievalOptions& options,
                                      std::int64_t num_items, std::span<const std::int64_t> counts)
    : alone_(std::move(alone)),
      world_(world == nullptr ? *alone_ : *world),
      schedule_(schedule_of(options.ranks)),
      next_ctx_(next_context(ctx)),
      step_(ctx, next_ctx_, world_, options, num_items, counts),
      order_({schedule_, options.clip != 0, options.ranks.warmup}),
      computed_(ctx),
      prepared_(ctx) {
  for (std::size_t i = 0; i < row_memories(schedule_); ++i) {
    memory_.push_back(std::make_unique<StepRowMemory<T>>(ctx, options, num_items));
  }
  // A GPU's host draws a step while the rows of the one before are in use: it needs nothing of
  // them.
  const std::size_t steps =
      ctx.device() == Device::kCuda ? std::max<std::size_t>(memory_.size(), 2) : memory_.size();
  for (std::size_t i = 0; i < steps; ++i) {
    // By the step's own copy of the options: a flight reads their features.
    steps_.push_back(std::make_unique<Flight>(ctx, step_.options(), num_items, step_.rows()));
    steps_.back()->memory = memory_[i % memory_.size()].get();
    if (steps_.back()->feature_rows) steps_.back()->feature_rows->reserve(next_ctx_);
  }
  if (schedule_ != StepSchedule::kSerial) worker_ = std::make_unique<BackgroundWorker>();
}

template <class T>
RetrievalTrainer<T>::~RetrievalTrainer() = default;

// An exception here must free the other ranks, and this rank's own worker, before the stack
// unwinds.
template <class T>
template <class Work>
void RetrievalTrainer<T>::guarded(Work&& work) {
  try {
    work();
  } catch (const std::exception& error) {
    world_.abort(error.what());
    throw;
  }
}

template <class T>
typename RetrievalTrainer<T>::Flight& RetrievalTrainer<T>::begin_step(
    std::span<const Batch> batches, bool stop) {
  TGR_CHECK(!batches.empty() && std::ssize(batches) <= options().accumulate, "a step of ",
            batches.size(), " batches; planned for 1 to ", options().accumulate);
  TGR_CHECK(pending() < queue_length(), "a step was submitted while ", pending(),
            " are on their way; finish one first");
  Flight& step = *steps_[static_cast<std::size_t>(steps_done_ % queue_length())];
  step.tokens = step.predicting = 0;
  for (const Batch& batch : batches) {
    TGR_CHECK(batch.num_tokens() <= options().memory.capacity, "a batch of ", batch.num_tokens(),
              " tokens where ", options().memory.capacity,
              " were planned for; raise train.tokens or lower train.batch");
    step.tokens += batch.num_tokens();
    step.predicting += step_.inputs().predicting(batch);
  }
  step.batches = batches;
  if (schedule_ != StepSchedule::kSerial) {
    step.kept.resize(std::max(step.kept.size(), batches.size()));
    std::copy(batches.begin(), batches.end(), step.kept.begin());
    step.batches = std::span<const Batch>(step.kept).first(batches.size());
  }
  step.step = steps_done_;
  step.stop = stop;
  step.rows_late = step.done = false;
  return step;
}

template <class T>
void RetrievalTrainer<T>::submit(const Context& ctx, std::span<const Batch> batches, bool stop) {
  Flight& step = begin_step(batches, stop);
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

template <class T>
StepResult RetrievalTrainer<T>::finish(const Context& ctx) {
  TGR_CHECK(!pending_.empty(), "no step was submitted; there is nothing to finish");
  Flight& step = *pending_.front();
  if (!step.done) {
    guarded([&] {
      Stages stages(*this, ctx);
      order_.drain(stages);
    });
  }
  const StepResult result = RetrievalStep<T>::result_of(step);
  pending_.pop_front();
  if (pending_.empty()) {
    step_.rows().end_steps(ctx);
    step_.clock().collect();
  }
  return result;
}

template <class T>
std::vector<NamedTensor> RetrievalTrainer<T>::model_tensors() {
  return weight_tensors(model().parameters());
}

template <class T>
std::vector<NamedTensor> RetrievalTrainer<T>::optimiser_tensors() {
  std::vector<NamedTensor> tensors =
      moment_tensors(model().parameters(), step_.first_moments(), step_.second_moments());
  if (Tensor* scales = model().fp8_scales()) tensors.push_back(named("fp8_scales", *scales));
  return tensors;
}

template <class T>
PlannedBytes RetrievalTrainer<T>::planned_bytes(const Context& ctx) const {
  PlannedBytes bytes = step_.bytes(ctx);
  bytes += step_bytes();
  return bytes;
}

template <class T>
PlannedBytes RetrievalTrainer<T>::step_bytes() const {
  PlannedBytes bytes;
  for (const auto& memory : memory_) bytes += memory->bytes();
  for (const auto& step : steps_) bytes += step->bytes();
  return bytes;
}

template class RetrievalTrainer<float>;
template class RetrievalTrainer<bf16>;

}  // namespace turbogr::train
