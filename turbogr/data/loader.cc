#include "turbogr/data/loader.h"

#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/data/batch_queue.h"

namespace turbogr::data {
namespace {

LoaderOptions resolved(LoaderOptions options) {
  if (options.windows.split != Split::kTrain) {
    options.plan.shuffle = false;
    options.collate.seen = true;
  }
  return options;
}

}  // namespace

struct Loader::Shared {
  Shared(const Store& store, const LoaderOptions& options)
      : windows(make_windows(store, options.windows)),
        collator(store, windows, options.collate),
        queue(windows,
              {.plan = options.plan,
               .rank = options.rank,
               .threads = options.threads,
               .queue = options.queue},
              {.reserve = [this](Batch& batch, std::int64_t samples,
                                 std::int64_t most) { collator.reserve(batch, samples, most); },
               .fill = [this](std::span<const std::uint32_t> indices,
                              Batch& batch) { collator.collate(indices, batch); }}) {
    TGR_CHECK(!windows.empty(), "'", store.folder().string(),
              "' has no user with enough events for the ", name_of(options.windows.split),
              " split of hold-out '", options.windows.holdout.text(), "'; ",
              options.windows.holdout.wanted_text(options.windows.split));
    for (const Window& window : windows) tokens += window.length;
  }

  const std::vector<Window> windows;
  std::int64_t tokens = 0;
  const Collator collator;
  BatchQueue<Batch> queue;  // last: its threads read the others
};

Loader::Loader(const Store& store, const LoaderOptions& options)
    : shared_(std::make_unique<Shared>(store, resolved(options))) {}

Loader::~Loader() = default;

std::int64_t Loader::num_windows() const {
  return static_cast<std::int64_t>(shared_->windows.size());
}
std::int64_t Loader::num_tokens() const { return shared_->tokens; }
std::int64_t Loader::max_batch_tokens() const { return shared_->queue.max_batch_tokens(); }
std::int64_t Loader::max_batch_samples() const { return shared_->queue.max_batch_samples(); }
bool Loader::next(Batch& batch) { return shared_->queue.next(batch); }
LoaderState Loader::state() const { return shared_->queue.state(); }
void Loader::restore(const LoaderState& state) { shared_->queue.restore(state); }

}  // namespace turbogr::data
