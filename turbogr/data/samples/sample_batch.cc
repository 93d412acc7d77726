#include "turbogr/data/samples/sample_batch.h"

#include <algorithm>
#include <cmath>

#include "turbogr/core/check.h"
#include "turbogr/data/samples/past_rates.h"

namespace turbogr::data {
namespace {

void clear_ids(const std::vector<SampleFeature>& features, std::vector<SampleIds>& ids) {
  ids.resize(features.size());
  for (std::size_t f = 0; f < features.size(); ++f) {
    ids[f].ids.clear();
    ids[f].offsets.clear();
    ids[f].weights.clear();
    if (features[f].has_offsets()) ids[f].offsets.push_back(0);
  }
}

void reserve_ids(const std::vector<SampleFeature>& features, std::int64_t places,
                 std::vector<SampleIds>& ids) {
  ids.resize(features.size());
  for (std::size_t f = 0; f < features.size(); ++f) {
    const std::int64_t most = places * (features[f].scale ? NumberScale::kMostIds : 1);
    ids[f].ids.reserve(static_cast<std::size_t>(most));
    if (features[f].scale) ids[f].weights.reserve(static_cast<std::size_t>(most));
    if (features[f].has_offsets()) ids[f].offsets.reserve(static_cast<std::size_t>(places) + 1);
  }
}

void add_ids(const std::vector<SampleFeature>& features, const EventPlace& place,
             std::vector<SampleIds>& ids) {
  for (std::size_t f = 0; f < features.size(); ++f) {
    if (features[f].scale) {
      read_scaled(features[f], place, ids[f].ids, ids[f].weights);
    } else {
      read_ids(features[f], place, ids[f].ids);
    }
    if (features[f].has_offsets()) ids[f].offsets.push_back(std::ssize(ids[f].ids));
  }
}

float base_of(const SampleTask& task, const EventPlace& place) {
  float sum = 0;
  for (const std::shared_ptr<const PastRates>& rates : task.base) {
    const float each = rate_of(*rates, place);
    if (!std::isnan(each)) sum += each;
  }
  return sum;
}

}  // namespace

SampleCollator::SampleCollator(const Store& store, const SampleOptions& options,
                               const SampleLayout& layout)
    : store_(store),
      layout_(layout),
      history_(store, options),
      targets_at_last_time_(options.targets_at_last_time),
      has_bases_(std::any_of(layout.tasks.begin(), layout.tasks.end(),
                             [](const SampleTask& task) { return !task.base.empty(); })) {
  for (const SampleTask& task : layout.tasks) {
    numbers_.push_back(task.is_number() ? store.numbers(task.number) : std::span<const float>());
  }
  if (store.has_times()) times_ = store.times();
  if (store.time_unit() == TimeUnit::kMilliseconds) second_ = 1000;
}

void SampleCollator::reserve(SampleBatch& batch, std::int64_t samples, std::int64_t tokens) const {
  const auto num_samples = static_cast<std::size_t>(samples);
  const auto num_tokens = static_cast<std::size_t>(tokens);
  const std::size_t num_labels = num_tokens * layout_.tasks.size();
  batch.offsets.reserve(num_samples + 1);
  batch.num_targets.reserve(num_samples);
  batch.users.reserve(num_samples);
  batch.times.reserve(num_tokens);
  batch.actions.reserve(num_tokens);
  batch.row_keys.reserve(num_tokens);
  batch.labels.reserve(num_labels);
  batch.weights.reserve(num_labels);
  if (has_bases_) batch.bases.reserve(num_labels);
  batch.target_users.reserve(num_tokens);
  reserve_ids(layout_.prefix, samples, batch.prefix);
  reserve_ids(layout_.items, tokens, batch.items);
}

void SampleCollator::clear(SampleBatch& batch) const {
  batch.offsets.assign(1, 0);
  batch.num_targets.clear();
  batch.times.clear();
  batch.actions.clear();
  batch.row_keys.clear();
  batch.labels.clear();
  batch.weights.clear();
  batch.bases.clear();
  batch.users.clear();
  batch.target_users.clear();
  clear_ids(layout_.prefix, batch.prefix);
  clear_ids(layout_.items, batch.items);
}

std::int64_t SampleCollator::seconds_of(std::int64_t event) const {
  if (times_.empty()) return 0;
  const std::int64_t time = times_[static_cast<std::size_t>(event)];
  return time / second_ - (time % second_ < 0 ? 1 : 0);
}

std::uint32_t SampleCollator::actions_of(std::uint32_t signals) const {
  std::uint32_t actions = 0;
  for (std::size_t a = 0; a < layout_.action_bits.size(); ++a) {
    actions |= ((signals >> layout_.action_bits[a]) & 1u) << a;
  }
  return actions;
}

// Stretches of the store at a time.
void SampleCollator::read_events(SampleBatch& batch) const {
  const std::vector<std::int64_t>& events = batch.events;
  batch.event_items.resize(events.size());
  batch.event_signals.resize(events.size());
  for (std::size_t from = 0; from < events.size();) {
    std::size_t to = from + 1;
    while (to < events.size() && events[to] == events[to - 1] + 1) ++to;
    store_.read_items(events[from], std::span(batch.event_items).subspan(from, to - from));
    store_.read_signals(events[from], std::span(batch.event_signals).subspan(from, to - from));
    from = to;
  }
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::int64_t item = batch.event_items[i];
    TGR_CHECK(item >= 0 && item < store_.num_items(), "'", store_.folder().string(), "': event ",
              events[i], " names item ", item, ", and there are ", store_.num_items(),
              "; the store is damaged, run `turbogr data verify`");
  }
}

void SampleCollator::add_events(std::int64_t user, std::int64_t history_end, std::int64_t first,
                                std::int64_t targets, SampleBatch& batch) const {
  history_.read(store_.offsets()[static_cast<std::size_t>(user)], history_end, batch.events);
  const std::size_t history = batch.events.size();
  for (std::int64_t i = 0; i < targets; ++i) batch.events.push_back(first + i);
  read_events(batch);
  for (std::size_t i = 0; i < batch.events.size(); ++i) {
    const EventPlace place = {user, batch.event_items[i], batch.events[i],
                              seconds_of(batch.events[i])};
    const bool at_last = targets_at_last_time_ && i >= history && history > 0;
    batch.times.push_back(at_last ? seconds_of(batch.events[history - 1]) : place.seconds);
    // What became of a target stays hidden.
    batch.actions.push_back(i < history ? actions_of(batch.event_signals[i]) : 0u);
    add_ids(layout_.items, place, batch.items);
    if (i >= history) add_label(place, batch.event_signals[i], batch);
  }
}

void SampleCollator::add_label(const EventPlace& target, std::uint32_t signals,
                               SampleBatch& batch) const {
  const std::int64_t event = target.event;
  for (std::size_t k = 0; k < layout_.tasks.size(); ++k) {
    const SampleTask& task = layout_.tasks[k];
    float label = (signals & task.signals) != 0 ? 1.0f : 0.0f;
    if (event >= 0 && task.is_number()) label = numbers_[k][static_cast<std::size_t>(event)];
    const bool known = event >= 0 && !std::isnan(label);
    batch.labels.push_back(known ? label : 0.0f);
    batch.weights.push_back(known ? task.weight.of(event, signals) : 0.0f);
    if (has_bases_) batch.bases.push_back(base_of(task, target));
  }
}

void SampleCollator::end_sample(const EventPlace& first_target, std::int64_t targets,
                                std::uint64_t key, SampleBatch& batch) const {
  add_ids(layout_.prefix, first_target, batch.prefix);
  batch.users.push_back(first_target.user);
  batch.num_targets.push_back(targets);
  batch.target_users.insert(batch.target_users.end(), static_cast<std::size_t>(targets),
                            first_target.user);
  const std::int64_t end =
      std::ssize(batch.times) + batch.num_samples() * std::ssize(layout_.prefix);
  for (std::int64_t i = batch.offsets.back(); i < end; ++i) {
    batch.row_keys.push_back((key << kPositionBits) +
                             static_cast<std::uint64_t>(i - batch.offsets.back()));
  }
  batch.offsets.push_back(end);
}

void SampleCollator::collate(const Samples& samples, std::span<const std::uint32_t> indices,
                             SampleBatch& batch) const {
  clear(batch);
  for (const std::uint32_t index : indices) {
    const Window& window = samples.windows[index];
    const std::int64_t first = window.first_event, targets = samples.num_targets[index];
    add_events(window.user, samples.history_end(index), first, targets, batch);
    const std::int64_t item =
        batch.event_items[batch.event_items.size() - static_cast<std::size_t>(targets)];
    end_sample({window.user, item, first, seconds_of(first)}, targets, index, batch);
  }
}

void SampleCollator::collate(std::span<const SampleRequest> requests, SampleBatch& batch) const {
  clear(batch);
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const SampleRequest& request = requests[r];
    TGR_CHECK(!request.items.empty(), "a request without items to rank");
    std::int64_t seconds = request.seconds, last = seconds;
    if (request.user >= 0) {
      const auto user = static_cast<std::size_t>(request.user);
      const std::int64_t begin = store_.offsets()[user];
      std::int64_t end = store_.offsets()[user + 1];
      if (request.has_time) {
        while (end > begin && seconds_of(end - 1) >= seconds) --end;
      } else if (end > begin) {
        seconds = seconds_of(end - 1);
      }
      add_events(request.user, end, end, 0, batch);
      last = batch.events.empty() ? seconds : seconds_of(batch.events.back());
    }
    EventPlace place = {request.user, -1, -1, seconds, &request.values};
    if (request.has_time) place.before = request.seconds;
    for (const std::int64_t item : request.items) {
      place.item = item;
      batch.times.push_back(targets_at_last_time_ ? last : seconds);
      batch.actions.push_back(0u);
      add_ids(layout_.items, place, batch.items);
      add_label(place, 0, batch);
    }
    place.item = request.items[0];
    end_sample(place, std::ssize(request.items), r, batch);
  }
}

}  // namespace turbogr::data
