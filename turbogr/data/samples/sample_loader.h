// Batches of the ranking task, made ahead of time: as data/loader.h, of samples.
//
//   SampleLoader loader(store, {.samples = {.targets = 8}, .layout = layout, .queue = {...}});
//   SampleBatch batch;                     // kept: its buffers go round
//   while (loader.next(batch)) train(batch);     // one epoch
#pragma once

#include <cstdint>
#include <memory>

#include "turbogr/data/batch_queue.h"
#include "turbogr/data/samples/sample_batch.h"
#include "turbogr/data/samples/samples.h"
#include "turbogr/data/store.h"

namespace turbogr::data {

struct SampleLoaderOptions {
  SampleOptions samples;
  SampleLayout layout;
  QueueOptions queue;  // evaluation splits are never shuffled
};

class SampleLoader {
 public:
  // The store outlives the loader.
  SampleLoader(const Store& store, const SampleLoaderOptions& options);
  ~SampleLoader();
  SampleLoader(const SampleLoader&) = delete;
  SampleLoader& operator=(const SampleLoader&) = delete;

  const Samples& samples() const;
  std::int64_t num_tokens() const;         // of an epoch, over all ranks
  std::int64_t max_batch_samples() const;  // of a rank
  std::int64_t max_batch_tokens() const;
  std::int64_t max_batch_targets() const;

  bool next(SampleBatch& batch);  // as Loader::next
  LoaderState state() const;
  void restore(const LoaderState& state);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace turbogr::data
