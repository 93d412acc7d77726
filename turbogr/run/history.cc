#include "turbogr/run/history.h"

#include <algorithm>

#include "turbogr/core/check.h"

namespace turbogr::run {
namespace {

void clear(data::Batch& batch) {
  batch = {};
  batch.offsets = {0};
  batch.seen_offsets = {0};
}

// Appends one sequence; times are in the store's unit. `user` and `first_event` are the store's, or
// -1.
void append(const data::Store& store, const std::vector<HistoryEvent>& events, std::int64_t user,
            std::int64_t first_event, const HistoryOptions& options, data::Batch& batch) {
  const bool to_seconds =
      store.time_unit() == data::TimeUnit::kMilliseconds && !options.milliseconds;
  const auto unit = [&](std::int64_t time) { return to_seconds ? time / 1000 : time; };
  const auto count = static_cast<std::int64_t>(events.size());
  const std::int64_t begin = std::max<std::int64_t>(0, count - options.max_length);
  for (std::int64_t i = begin; i < count; ++i) {
    const HistoryEvent& event = events[static_cast<std::size_t>(i)];
    const std::int64_t next = i + 1 < count ? events[static_cast<std::size_t>(i + 1)].time
                                            : options.query_time.value_or(event.time);
    batch.items.push_back(event.item);
    batch.targets.push_back(0);  // unknown: that is what is asked
    batch.signals.push_back(event.signals);
    batch.row_keys.push_back(static_cast<std::uint64_t>(i));
    if (store.has_times()) {
      batch.key_times.push_back(unit(event.time));
      batch.query_times.push_back(unit(next));
    }
  }
  for (const HistoryEvent& event : events) batch.seen_items.push_back(event.item);
  batch.users.push_back(user);
  batch.windows.push_back(std::ssize(batch.windows));
  batch.first_events.push_back(first_event < 0 ? -1 : first_event + begin);
  batch.offsets.push_back(static_cast<std::int64_t>(batch.items.size()));
  batch.seen_offsets.push_back(static_cast<std::int64_t>(batch.seen_items.size()));
}

}  // namespace

void history_batch(const data::Store& store, std::span<const std::int64_t> users,
                   const HistoryOptions& options, data::Batch& batch) {
  clear(batch);
  std::vector<HistoryEvent> events;
  std::vector<std::int64_t> items;
  std::vector<std::uint32_t> signals;
  for (const std::int64_t user : users) {
    const auto [first, count] = store.events_of(user);
    TGR_CHECK(count > 0, "user ", store.user_ids().text(user), " has no events to recommend from");
    items.resize(static_cast<std::size_t>(count));
    store.read_items(first, items);
    signals.resize(static_cast<std::size_t>(count));
    store.read_signals(first, signals);
    events.clear();
    for (std::int64_t i = 0; i < count; ++i) {
      events.push_back({items[static_cast<std::size_t>(i)],
                        store.has_times() ? store.times()[static_cast<std::size_t>(first + i)] : 0,
                        signals[static_cast<std::size_t>(i)]});
    }
    append(store, events, user, first, options, batch);
  }
}

void history_batch(const data::Store& store, std::span<const std::vector<HistoryEvent>> histories,
                   const HistoryOptions& options, data::Batch& batch) {
  clear(batch);
  for (std::size_t i = 0; i < histories.size(); ++i) {
    TGR_CHECK(!histories[i].empty(), histories.size() == 1 ? "the history" : "a history",
              " is empty; give at least one item");
    append(store, histories[i], /*user=*/-1, /*first_event=*/-1, options, batch);
  }
}

}  // namespace turbogr::run
