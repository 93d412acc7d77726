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
    steps_.push_back(std::make_unique<Flight>(ctx, options, num_items, step_.rows()));
    steps_.back()->memory = memory_[i % memory_.size()].get();
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
  guarded([&] {
    if (schedule_ != StepSchedule::kSerial && held_ != nullptr) {
      pending_.push_back(&step);
      return advance(ctx, &step);
    }
    step_.prepare(ctx, Lane::kThis, step);
    step_.fetch(ctx, Lane::kThis, step);
    pending_.push_back(&step);
    if (schedule_ == StepSchedule::kSerial) {
      whole_step(ctx, step);
    } else {
      held_ = &step;
    }
  });
  steps_done_ = step.step + 1;
}

template <class T>
StepResult RetrievalTrainer<T>::finish(const Context& ctx) {
  TGR_CHECK(!pending_.empty(), "no step was submitted; there is nothing to finish");
  Flight& step = *pending_.front();
  if (!step.done) guarded([&] { drain(ctx); });
  const StepResult result = RetrievalStep<T>::result_of(step);
  pending_.pop_front();
  if (pending_.empty()) {
    step_.rows().end_steps(ctx);
    step_.clock().collect();
  }
  return result;
}

// A step whose rows are here, to its end.
template <class T>
void RetrievalTrainer<T>::whole_step(const Context& ctx, Flight& step) {
  stop_asked_ = stop_asked_ || step.stop;
  step_.compute(ctx, step);
  step_.return_rows(ctx, Lane::kThis, step, Part::kAll);
  step_.update_dense(ctx, step);
  step_.update_rows(ctx, Lane::kThis, step, Part::kAll);
  step_.finish(ctx, step);
}

template <class T>
bool RetrievalTrainer<T>::rows_late() const {
  return schedule_ == StepSchedule::kSemiAsync && steps_done_ >= options().ranks.warmup;
}

// What a step has left for later.
template <class T>
void RetrievalTrainer<T>::end_late(const Context& ctx, Lane lane, Flight& step) {
  const bool all = schedule_ == StepSchedule::kSemiAsync;
  const Part part = all ? Part::kAll : Part::kRest;
  // Clipping has had all gradients returned before the dense update.
  if (step.rows_late) step_.return_rows(ctx, lane, step, part);
  step_.update_rows(ctx, lane, step, part);
  step_.finish(ctx, step);
}

// Computes the step whose rows are here while the worker ends the one before and prepares `next`.
template <class T>
void RetrievalTrainer<T>::advance(const Context& ctx, Flight* next) {
  Flight& current = *std::exchange(held_, nullptr);
  Flight* const late = std::exchange(late_, nullptr);
  const bool exact = schedule_ == StepSchedule::kExactPrefetch && step_.rows().fetches_ahead();
  const bool missed = rows_late();
  // Without clipping nobody waits for gradients of rows that the next step does not read.
  const bool parted = exact && options().clip == 0;
  current.rows_late = parted || (missed && options().clip == 0);
  computed_.record(ctx);
  worker_->start([=, this, &current] {
    bind_thread(next_ctx_);
    computed_.wait_on(next_ctx_);
    if (late != nullptr) end_late(next_ctx_, Lane::kNext, *late);
    step_.prepare(next_ctx_, Lane::kNext, *next);
    if (exact || missed) step_.fetch(next_ctx_, Lane::kNext, *next);
    if (exact) {
      const auto scope = step_.clock().enter(next_ctx_, stages::kPlan, Lane::kNext);
      step_.rows().plan_refresh(next_ctx_, Lane::kNext, *next->request, *current.request, parted);
    }
    prepared_.record(next_ctx_);
  });
  stop_asked_ = stop_asked_ || current.stop;
  step_.compute(ctx, current);
  if (!current.rows_late) step_.return_rows(ctx, Lane::kThis, current, Part::kAll);
  step_.update_dense(ctx, current);
  {
    const auto scope = step_.clock().enter(ctx, stages::kJoin, Lane::kThis);
    worker_->join();  // what it fetches is read before the update
    prepared_.wait_on(ctx);
  }
  if (missed) {
    late_ = &current;
  } else if (parted) {
    step_.return_rows(ctx, Lane::kThis, current, Part::kNextReads);
    step_.update_rows(ctx, Lane::kThis, current, Part::kNextReads);
    late_ = &current;
  } else {
    step_.update_rows(ctx, Lane::kThis, current, Part::kAll);
    step_.finish(ctx, current);
  }
  if (exact) {
    const auto scope = step_.clock().enter(ctx, stages::kRefresh, Lane::kThis);
    const embedding::StepRows<T> rows = next->rows();
    step_.rows().refresh(ctx, Lane::kThis, *next->request, {&rows, 1});
  } else if (!missed) {
    step_.fetch(ctx, Lane::kThis, *next);
  }
  held_ = next;
}

// Ends all that is under way.
template <class T>
void RetrievalTrainer<T>::drain(const Context& ctx) {
  if (late_ != nullptr) end_late(ctx, Lane::kThis, *std::exchange(late_, nullptr));
  if (held_ != nullptr) whole_step(ctx, *std::exchange(held_, nullptr));
}

template <class T>
std::vector<NamedTensor> RetrievalTrainer<T>::model_tensors() {
  return weight_tensors(model().parameters());
}

template <class T>
std::vector<NamedTensor> RetrievalTrainer<T>::optimiser_tensors() {
  return moment_tensors(model().parameters(), step_.first_moments(), step_.second_moments());
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
