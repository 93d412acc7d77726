// Batches made ahead of time by background threads, in the order a planner gives them: what loaders
// of every kind of batch share. The order is a function of the plan alone: neither the threads nor
// the queue change it.
//
//   BatchQueue<Batch> queue(windows, {.plan = {.seed = 1}, .threads = 2},
//                           {.reserve = ..., .fill = ...});
//   while (queue.next(batch)) ...                        // one epoch
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "turbogr/data/batching.h"
#include "turbogr/data/windows.h"

namespace turbogr::data {

struct QueueOptions {
  PlanOptions plan;
  int rank = 0;     // of plan.world
  int threads = 1;  // 0: batches are made when asked for, on the caller's thread
  int queue = 4;    // batches made ahead at most
};

template <class Batch>  // has `epoch` and `step`; swaps cheaply
class BatchQueue {
 public:
  // Both are called from several threads at once.
  struct Maker {
    // Room for a batch of this size, so that filling it allocates nothing.
    std::function<void(Batch& batch, std::int64_t samples, std::int64_t tokens)> reserve;
    std::function<void(std::span<const std::uint32_t> indices, Batch& batch)> fill;
  };

  // `windows` and what the maker reads outlive it.
  BatchQueue(std::span<const Window> windows, const QueueOptions& options, Maker maker);
  ~BatchQueue();  // stops the threads; batches made ahead are dropped
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  std::int64_t max_batch_samples() const;
  std::int64_t max_batch_tokens() const;

  // Gives the next batch in exchange for the buffers of an old one. False at the end of each epoch;
  // the call after that begins the next. Throws what went wrong in the background, in its place in
  // the order, and again on every later call.
  bool next(Batch& batch);

  // Where the caller stands: after the batch last given. Batches made ahead are not counted.
  LoaderState state() const;
  // Goes on from there: the next batch is the one that would have followed.
  void restore(const LoaderState& state);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace turbogr::data
