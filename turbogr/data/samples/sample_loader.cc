#include "turbogr/data/samples/sample_loader.h"

#include <algorithm>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

SampleLoaderOptions checked_options(const Store& store, SampleLoaderOptions options) {
  if (options.samples.split != Split::kTrain) options.queue.plan.shuffle = false;
  options.samples.prefix = std::ssize(options.layout.prefix);
  // All that came before, whatever of it a sample shows.
  options.queue.plan.length_of = [offsets = store.offsets()](const Window& window) {
    return window.first_event - offsets[static_cast<std::size_t>(window.user)];
  };
  return options;
}

}  // namespace

struct SampleLoader::Shared {
  Shared(const Store& store, const SampleLoaderOptions& given)
      : options(checked_options(store, given)),
        samples(make_samples(store, options.samples)),
        collator(store, options.samples, options.layout),
        queue(samples.windows, options.queue,
              {.reserve = [this](SampleBatch& batch, std::int64_t count,
                                 std::int64_t most) { collator.reserve(batch, count, most); },
               .fill = [this](std::span<const std::uint32_t> indices,
                              SampleBatch& batch) { collator.collate(samples, indices, batch); }}) {
    TGR_CHECK(samples.size() > 0, "'", store.folder().string(), "' has no targets for the ",
              name_of(options.samples.split), " split of hold-out '",
              options.samples.holdout.text(), "' and samples.targets = ", options.samples.targets,
              "; lower samples.targets, or choose another data.holdout or samples.builder");
    for (const Window& window : samples.windows) tokens += window.length;
  }

  const SampleLoaderOptions options;
  const Samples samples;
  std::int64_t tokens = 0;
  const SampleCollator collator;
  BatchQueue<SampleBatch> queue;  // last: its threads read the others
};

SampleLoader::SampleLoader(const Store& store, const SampleLoaderOptions& options)
    : shared_(std::make_unique<Shared>(store, options)) {}

SampleLoader::~SampleLoader() = default;

const Samples& SampleLoader::samples() const { return shared_->samples; }
std::int64_t SampleLoader::num_tokens() const { return shared_->tokens; }
std::int64_t SampleLoader::max_batch_samples() const { return shared_->queue.max_batch_samples(); }
std::int64_t SampleLoader::max_batch_tokens() const { return shared_->queue.max_batch_tokens(); }

std::int64_t SampleLoader::max_batch_targets() const {
  return std::min({shared_->samples.targets(), max_batch_tokens(),
                   max_batch_samples() * shared_->samples.most_targets()});
}

bool SampleLoader::next(SampleBatch& batch) { return shared_->queue.next(batch); }
LoaderState SampleLoader::state() const { return shared_->queue.state(); }
void SampleLoader::restore(const LoaderState& state) { shared_->queue.restore(state); }

}  // namespace turbogr::data
