#include "turbogr/data/batch.h"

#include <algorithm>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

// Rounded down, before 1970 too.
std::int64_t whole_seconds(std::int64_t milliseconds) {
  return milliseconds >= 0 ? milliseconds / 1000 : -((999 - milliseconds) / 1000);
}

}  // namespace

Collator::Collator(const Store& store, std::span<const Window> windows,
                   const CollateOptions& options)
    : store_(store), windows_(windows), options_(options) {
  TGR_CHECK(!options.signals || store.has_signals(), "'", store.folder().string(),
            "' keeps no action signals; prepare it with some, or turn data.signals off");
  TGR_CHECK(options.time_unit != TimeUnit::kMilliseconds || !store.has_times() ||
                store.time_unit() == TimeUnit::kMilliseconds,
            "'", store.folder().string(),
            "' keeps times in seconds; milliseconds cannot be had from it");
  if (store.wide_items()) {
    items64_ = store.items64();
  } else {
    items32_ = store.items32();
  }
  if (store.has_times() && options.time_unit != TimeUnit::kNone) times_ = store.times();
  to_seconds_ =
      store.time_unit() == TimeUnit::kMilliseconds && options.time_unit == TimeUnit::kSeconds;
}

void Collator::reserve(Batch& batch, std::int64_t samples, std::int64_t tokens) const {
  const auto num_samples = static_cast<std::size_t>(samples);
  const auto num_tokens = static_cast<std::size_t>(tokens);
  batch.offsets.reserve(num_samples + 1);
  batch.users.reserve(num_samples);
  batch.windows.reserve(num_samples);
  batch.first_events.reserve(num_samples);
  batch.items.reserve(num_tokens);
  batch.targets.reserve(num_tokens);
  batch.row_keys.reserve(num_tokens);
  if (!times_.empty()) {
    batch.key_times.reserve(num_tokens);
    batch.query_times.reserve(num_tokens);
  }
  if (options_.signals) batch.signals.reserve(num_tokens);
}

template <class Item>
void Collator::copy_items(const Item* items, const Window& window, std::int64_t at,
                          Batch& batch) const {
  const Item* from = items + window.first_event;
  std::int64_t* inputs = batch.items.data() + at;
  std::int64_t* targets = batch.targets.data() + at;
  // Every event is checked once, as an unsigned number so that negative ones are too large.
  std::uint64_t largest = static_cast<std::uint64_t>(static_cast<std::int64_t>(from[0]));
  inputs[0] = from[0];
  for (std::int64_t i = 1; i < window.length; ++i) inputs[i] = from[i];
  for (std::int64_t i = 0; i < window.length; ++i) targets[i] = from[i + 1];
  for (std::int64_t i = 0; i < window.length; ++i) {
    largest = std::max(largest, static_cast<std::uint64_t>(targets[i]));
  }
  if (largest < static_cast<std::uint64_t>(store_.num_items())) [[likely]] {
    return;
  }
  std::int64_t bad = 0;
  while (from[bad] >= 0 && from[bad] < store_.num_items()) ++bad;
  detail::throw_error("'", store_.folder().string(), "': event ", window.first_event + bad,
                      " of user ", window.user, " names item ", from[bad], ", and there are ",
                      store_.num_items(), "; the store is damaged, run `turbogr data verify`");
}

void Collator::copy_times(const Window& window, std::int64_t at, Batch& batch) const {
  const std::int64_t* from = times_.data() + window.first_event;
  std::int64_t* keys = batch.key_times.data() + at;
  std::int64_t* queries = batch.query_times.data() + at;
  if (to_seconds_) {
    keys[0] = whole_seconds(from[0]);
    for (std::int64_t i = 0; i < window.length; ++i) queries[i] = whole_seconds(from[i + 1]);
    std::copy_n(queries, window.length - 1, keys + 1);
  } else {
    std::copy_n(from, window.length, keys);
    std::copy_n(from + 1, window.length, queries);
  }
}

void Collator::copy_seen(Batch& batch) const {
  batch.seen_offsets.assign(1, 0);
  batch.seen_items.clear();
  for (const std::int64_t index : batch.windows) {
    const Window& window = windows_[static_cast<std::size_t>(index)];
    const std::int64_t begin = store_.events_of(window.user).first;
    const std::int64_t count = window.first_event + window.length - begin;
    const std::size_t at = batch.seen_items.size();
    batch.seen_items.resize(at + static_cast<std::size_t>(count));
    store_.read_items(begin, std::span(batch.seen_items).subspan(at));
    batch.seen_offsets.push_back(static_cast<std::int64_t>(batch.seen_items.size()));
  }
}

void Collator::collate(std::span<const std::uint32_t> indices, Batch& batch) const {
  batch.offsets.assign(1, 0);
  batch.users.clear();
  batch.windows.clear();
  batch.first_events.clear();
  std::int64_t tokens = 0;
  for (const std::uint32_t index : indices) {
    const Window& window = windows_[index];
    batch.offsets.push_back(tokens += window.length);
    batch.users.push_back(window.user);
    batch.windows.push_back(index);
    batch.first_events.push_back(window.first_event);
  }
  const auto size = static_cast<std::size_t>(tokens);
  batch.items.resize(size);
  batch.targets.resize(size);
  batch.row_keys.resize(size);
  batch.key_times.resize(times_.empty() ? 0 : size);
  batch.query_times.resize(times_.empty() ? 0 : size);
  batch.signals.resize(options_.signals ? size : 0);
  for (std::size_t b = 0; b < indices.size(); ++b) {
    const Window& window = windows_[indices[b]];
    const std::int64_t at = batch.offsets[b];
    if (items32_.empty()) {
      copy_items(items64_.data(), window, at, batch);
    } else {
      copy_items(items32_.data(), window, at, batch);
    }
    if (!times_.empty()) copy_times(window, at, batch);
    if (options_.signals) {
      store_.read_signals(
          window.first_event,
          std::span(batch.signals)
              .subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(window.length)));
    }
    const std::uint64_t key = static_cast<std::uint64_t>(indices[b]) << kPositionBits;
    for (std::int64_t i = 0; i < window.length; ++i) {
      batch.row_keys[static_cast<std::size_t>(at + i)] = key + static_cast<std::uint64_t>(i);
    }
  }
  if (options_.seen) copy_seen(batch);
}

}  // namespace turbogr::data
