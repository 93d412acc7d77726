// Batches of a store, made ahead of time by background threads. The order is a function of (seed,
// epoch) alone: neither the threads nor the ranks nor the queue change it.
//
//   Loader loader(store, {.windows = {.max_length = 2048}, .plan = {.seed = 1}, .threads = 2});
//   Batch batch;                           // kept: its buffers go round
//   while (loader.next(batch)) train(batch);     // one epoch
#pragma once

#include <cstdint>
#include <memory>

#include "turbogr/data/batch.h"
#include "turbogr/data/batching.h"
#include "turbogr/data/store.h"
#include "turbogr/data/windows.h"

namespace turbogr::data {

struct LoaderOptions {
  WindowOptions windows;
  PlanOptions plan;        // evaluation splits are never shuffled
  CollateOptions collate;  // evaluation splits always have `seen`
  int rank = 0;            // of plan.world
  int threads = 1;         // 0: batches are made when asked for, on the caller's thread
  int queue = 4;           // batches made ahead at most
};

class Loader {
 public:
  // The store outlives the loader.
  Loader(const Store& store, const LoaderOptions& options);
  ~Loader();  // stops the threads; batches made ahead are dropped
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  std::int64_t num_windows() const;
  std::int64_t num_tokens() const;  // of an epoch, over all ranks
  std::int64_t max_batch_tokens() const;
  std::int64_t max_batch_samples() const;

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
