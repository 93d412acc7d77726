#include "turbogr/run/sequences.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/run/trained_model.h"

namespace turbogr::run {
namespace {

std::vector<data::Window> windows_of(const data::Store& store,
                                     const std::vector<std::int64_t>& users,
                                     const data::WindowOptions& options) {
  std::vector<data::Window> windows = data::make_windows(store, options);
  std::vector<bool> asked(static_cast<std::size_t>(store.num_users()));
  for (const std::int64_t user : users) asked[static_cast<std::size_t>(user)] = true;
  std::erase_if(windows, [&](const data::Window& window) {
    return !asked[static_cast<std::size_t>(window.user)];
  });
  const auto wanted = static_cast<std::size_t>(std::count(asked.begin(), asked.end(), true));
  TGR_CHECK(!windows.empty(), "none of the ", wanted, " users has a target in the ",
            name_of(options.split), " split");
  if (windows.size() < wanted) {
    log::warn("{} users skipped: they have no target in the {} split", wanted - windows.size(),
              name_of(options.split));
  }
  return windows;
}

data::CollateOptions with_seen(data::CollateOptions options) {
  options.seen = true;
  return options;
}

}  // namespace

std::int64_t batch_end(const Sequences& sequences, std::int64_t first, std::int64_t most_users) {
  std::int64_t end = first;
  std::int64_t tokens = 0;
  while (end < sequences.size() && (end == first || end - first < most_users)) {
    tokens += sequences.tokens(end);
    if (end > first && tokens > kTokensAtOnce) break;
    ++end;
  }
  return end;
}

WholeHistories::WholeHistories(const data::Store& store, std::vector<std::int64_t> users,
                               const HistoryOptions& options)
    : store_(store), users_(std::move(users)), options_(options) {}

std::int64_t WholeHistories::user(std::int64_t place) const {
  return users_[static_cast<std::size_t>(place)];
}

std::int64_t WholeHistories::tokens(std::int64_t place) const {
  return std::min(store_.events_of(user(place)).count, options_.max_length);
}

void WholeHistories::fill(std::int64_t first, std::int64_t end, data::Batch& batch) const {
  const auto count = static_cast<std::size_t>(end - first);
  history_batch(store_, std::span(users_).subspan(static_cast<std::size_t>(first), count), options_,
                batch);
}

GivenHistories::GivenHistories(const data::Store& store,
                               std::vector<std::vector<HistoryEvent>> histories,
                               const HistoryOptions& options)
    : store_(store), histories_(std::move(histories)), options_(options) {}

std::int64_t GivenHistories::tokens(std::int64_t place) const {
  return std::min(std::ssize(histories_[static_cast<std::size_t>(place)]), options_.max_length);
}

void GivenHistories::fill(std::int64_t first, std::int64_t end, data::Batch& batch) const {
  const auto count = static_cast<std::size_t>(end - first);
  history_batch(store_, std::span(histories_).subspan(static_cast<std::size_t>(first), count),
                options_, batch);
}

EvaluationHistories::EvaluationHistories(const data::Store& store,
                                         const std::vector<std::int64_t>& users,
                                         const data::LoaderOptions& options)
    : windows_(windows_of(store, users, options.windows)),
      collator_(store, windows_, with_seen(options.collate)) {}

std::int64_t EvaluationHistories::user(std::int64_t place) const {
  return windows_[static_cast<std::size_t>(place)].user;
}

std::int64_t EvaluationHistories::tokens(std::int64_t place) const {
  return windows_[static_cast<std::size_t>(place)].length;
}

void EvaluationHistories::fill(std::int64_t first, std::int64_t end, data::Batch& batch) const {
  std::vector<std::uint32_t> places(static_cast<std::size_t>(end - first));
  std::iota(places.begin(), places.end(), static_cast<std::uint32_t>(first));
  collator_.collate(places, batch);
}

}  // namespace turbogr::run
