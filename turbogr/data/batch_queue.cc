#include "turbogr/data/batch_queue.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/data/batch.h"
#include "turbogr/data/samples/sample_batch.h"

namespace turbogr::data {
namespace {

// The exception in flight, as one that names the batch; itself when there is no memory for words.
std::exception_ptr named_error(std::int64_t epoch, std::int64_t step) noexcept {
  std::exception_ptr raw = std::current_exception();
  try {
    std::string cause = "an exception of an unknown kind";
    try {
      std::rethrow_exception(raw);
    } catch (const std::exception& error) {
      cause = error.what();
    } catch (...) {
    }
    return std::make_exception_ptr(Error("loader: batch " + std::to_string(step) + " of epoch " +
                                         std::to_string(epoch) + ": " + cause));
  } catch (...) {
    return raw;
  }
}

QueueOptions checked_queue(const QueueOptions& options) {
  TGR_CHECK(options.rank >= 0 && options.rank < options.plan.world, "rank ", options.rank,
            " of a world of ", options.plan.world);
  TGR_CHECK(options.threads >= 0 && options.threads <= 1024, "a loader of ", options.threads,
            " threads; use 0 to 1024");
  TGR_CHECK(options.queue >= 1, "a loader queue of ", options.queue, " batches; use at least 1");
  return options;
}

// One place in the ring of batches made ahead.
template <class Batch>
struct Slot {
  std::vector<std::uint32_t> indices;  // windows of this rank's share
  Batch batch;
  LoaderState after;  // where the caller stands once it has this
  bool epoch_end = false;
  bool ready = false;
  std::exception_ptr error;
};

}  // namespace

// Tickets number batches in order. A worker takes the next ticket and its plan under the lock,
// fills the slot outside it, and marks it ready; the caller takes slots in order of tickets.
template <class Batch>
struct BatchQueue<Batch>::Shared {
  Shared(std::span<const Window> windows, const QueueOptions& given, Maker maker_of_batches)
      : options(checked_queue(given)),
        planner(windows, options.plan),
        maker(std::move(maker_of_batches)),
        slots(static_cast<std::size_t>(options.threads == 0 ? 1 : options.queue)),
        position(planner.state()) {
    for (Slot<Batch>& slot : slots) {
      slot.indices.reserve(static_cast<std::size_t>(planner.max_batch_samples()));
      reserve(slot.batch);
    }
  }

  ~Shared() { stop(); }

  void reserve(Batch& batch) const {
    maker.reserve(batch, planner.max_batch_samples(), planner.max_batch_tokens());
  }

  Slot<Batch>& slot_of(std::int64_t ticket) {
    return slots[static_cast<std::size_t>(ticket) % slots.size()];
  }

  // Neither of these two throws: what goes wrong stays in the slot for the caller.
  void plan(Slot<Batch>& slot) noexcept {
    slot.error = nullptr;
    slot.ready = false;
    slot.epoch_end = false;
    slot.batch.epoch = planner.state().epoch;
    slot.batch.step = step;
    try {
      slot.indices.clear();
      slot.epoch_end = !planner.next_step();
      slot.after = planner.state();
      if (slot.epoch_end) slot.batch.step = 0;
      step = slot.epoch_end ? 0 : step + 1;
      if (slot.epoch_end) return;
      const auto rank = static_cast<std::size_t>(options.rank);
      const auto order = planner.order();
      slot.indices.assign(order.begin() + planner.bounds()[rank],
                          order.begin() + planner.bounds()[rank + 1]);
    } catch (...) {
      slot.error = named_error(slot.batch.epoch, slot.batch.step);
      plan_failed = true;
    }
  }

  void fill(Slot<Batch>& slot) const noexcept {
    if (slot.epoch_end || slot.error) return;
    try {
      maker.fill(slot.indices, slot.batch);
    } catch (...) {
      slot.error = named_error(slot.batch.epoch, slot.batch.step);
    }
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      room.wait(lock, [this] {
        return stopping || plan_failed ||
               next_ticket - taken < static_cast<std::int64_t>(slots.size());
      });
      // Nothing follows a step that could not be planned: the caller stops there.
      if (stopping || plan_failed) return;
      Slot<Batch>& slot = slot_of(next_ticket++);
      plan(slot);
      lock.unlock();
      fill(slot);
      lock.lock();
      slot.ready = true;
      made.notify_one();
    }
  }

  void start() {
    stopping = false;
    plan_failed = false;
    try {
      for (int i = 0; i < options.threads; ++i) threads.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      const std::size_t started = threads.size();
      stop();
      detail::throw_error("loader: only ", started, " of ", options.threads,
                          " threads could be started (", error.code().message(),
                          "); ask for fewer");
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    room.notify_all();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }

  // With the lock held or no threads: hands the slot to the caller.
  bool hand_over(Slot<Batch>& slot, Batch& batch) {
    if (slot.error) {
      failure = slot.error;
      std::rethrow_exception(failure);
    }
    position = slot.after;
    if (slot.epoch_end) return false;
    std::swap(slot.batch, batch);
    return true;
  }

  const QueueOptions options;
  BatchPlanner planner;
  const Maker maker;
  std::vector<Slot<Batch>> slots;
  std::vector<std::thread> threads;

  std::mutex mutex;
  std::condition_variable room;  // a slot is free, or it is time to stop
  std::condition_variable made;  // a slot is ready
  bool stopping = false;
  bool plan_failed = false;
  std::int64_t next_ticket = 0;  // the next to be planned
  std::int64_t taken = 0;        // tickets the caller has had
  std::int64_t step = 0;         // of the next to be planned
  LoaderState position;
  std::exception_ptr failure;
};

template <class Batch>
BatchQueue<Batch>::BatchQueue(std::span<const Window> windows, const QueueOptions& options,
                              Maker maker)
    : shared_(std::make_unique<Shared>(windows, options, std::move(maker))) {
  shared_->start();
}

template <class Batch>
BatchQueue<Batch>::~BatchQueue() = default;

template <class Batch>
std::int64_t BatchQueue<Batch>::max_batch_samples() const {
  return shared_->planner.max_batch_samples();
}

template <class Batch>
std::int64_t BatchQueue<Batch>::max_batch_tokens() const {
  return shared_->planner.max_batch_tokens();
}

template <class Batch>
bool BatchQueue<Batch>::next(Batch& batch) {
  Shared& shared = *shared_;
  if (shared.failure) std::rethrow_exception(shared.failure);
  // The buffers handed in go round, so they must be as large as those of the ring.
  shared.reserve(batch);
  if (shared.threads.empty()) {
    Slot<Batch>& slot = shared.slots.front();
    shared.plan(slot);
    shared.fill(slot);
    return shared.hand_over(slot, batch);
  }
  std::unique_lock lock(shared.mutex);
  Slot<Batch>& slot = shared.slot_of(shared.taken);
  shared.made.wait(lock, [&] { return shared.next_ticket > shared.taken && slot.ready; });
  const bool given = shared.hand_over(slot, batch);
  ++shared.taken;
  lock.unlock();
  shared.room.notify_one();
  return given;
}

template <class Batch>
LoaderState BatchQueue<Batch>::state() const {
  return shared_->position;
}

template <class Batch>
void BatchQueue<Batch>::restore(const LoaderState& state) {
  Shared& shared = *shared_;
  shared.planner.check(state);
  shared.stop();
  shared.planner.restore(state);
  shared.position = state;
  shared.failure = nullptr;
  shared.next_ticket = 0;
  shared.taken = 0;
  shared.step = 0;
  shared.start();
}

template class BatchQueue<Batch>;
template class BatchQueue<SampleBatch>;

}  // namespace turbogr::data
