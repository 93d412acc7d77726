#include "turbogr/data/samples/past_rates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

constexpr std::int64_t kEventsAtOnce = 4096;
constexpr std::array<Split, 3> kSplits = {Split::kTrain, Split::kValidation, Split::kTest};

struct TimedEvent {
  std::int64_t time, event;
  auto operator<=>(const TimedEvent&) const = default;
};

double log_odds(double share) { return std::log(share / (1 - share)); }

}  // namespace

EventOrder::EventOrder(const Store& store, const Holdout& holdout, std::int64_t targets,
                       bool kept_back_before_split)
    : before_split(kept_back_before_split) {
  TGR_CHECK(store.has_times(), "'", store.folder().string(),
            "' has no times (order only), and a rate counts the events before an event; leave "
            "rate out, or prepare the store with times");
  const std::span<const std::int64_t> times = store.times(), offsets = store.offsets();
  known_until.assign(times.begin(), times.end());
  split.resize(times.size());
  std::vector<TimedEvent> timed(times.size());
  for (std::size_t i = 0; i < times.size(); ++i)
    timed[i] = {times[i], static_cast<std::int64_t>(i)};
  std::sort(timed.begin(), timed.end());
  events.reserve(timed.size());
  for (const TimedEvent& each : timed) events.push_back(each.event);
  for (std::int64_t user = 0; user < store.num_users(); ++user) {
    const Store::UserEvents own = store.events_of(user);
    const auto first = static_cast<std::size_t>(own.first);
    const auto own_times = times.subspan(first, static_cast<std::size_t>(own.count));
    for (const Split each : kSplits) {
      if (each == Split::kValidation && !holdout.has_validation()) continue;
      const EventRange range =
          holdout.targets_of(each, own.count, own_times, store.time_unit(), targets);
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        split[first + static_cast<std::size_t>(i)] = each;
        if (before_split && each != Split::kTrain) {
          known_until[first + static_cast<std::size_t>(i)] =
              own_times[static_cast<std::size_t>(range.begin)];
        }
      }
    }
  }
}

PastRates::PastRates(const Store& store, const EventOrder& order, const PastRateOptions& options)
    : store_(store),
      options_(options),
      second_(store.time_unit() == TimeUnit::kMilliseconds ? 1000 : 1),
      values_(static_cast<std::size_t>(store.num_events()), NAN) {
  TGR_CHECK(!options.keys.empty() && options.prior > 0 && options.delay >= 0, "a rate of ",
            options.keys.size(), " sources, prior ", options.prior, " and delay ", options.delay,
            "; give a source, more than 0 and at least 0");
  if (options.keys.size() == 1) {
    codes_ = options.keys[0].codes;
  } else {
    number_pairs();
  }
  std::vector<Mark> marks(values_.size());
  for_events([&](const EventPlace& place, bool positive) {
    marks[static_cast<std::size_t>(place.event)] = {code_of(place), positive};
  });
  for (const Split split : kSplits) fill(order, split, marks);
}

float PastRates::at(const EventPlace& place) const {
  // Before all that there is no delay to speak of.
  const bool ever = place.before == std::numeric_limits<std::int64_t>::max();
  const std::int64_t before = ever ? place.before : place.before - options_.delay;
  const std::scoped_lock lock(mutex_);
  if (before != counted_before_) {
    counted_ = Counts(codes_);
    for_events([&](const EventPlace& event, bool positive) {
      if (event.seconds < before) counted_.add(code_of(event), positive);
    });
    counted_before_ = before;
  }
  return rate(counted_, code_of(place));
}

void PastRates::Counts::add(std::int64_t code, bool positive) {
  for (Count* count : {&of_code[static_cast<std::size_t>(code)], &all}) {
    count->events += 1;
    count->positives += positive ? 1 : 0;
  }
}

// Rounded down, before 1970 too.
std::int64_t PastRates::seconds_of(std::int64_t time) const {
  return time / second_ - (time % second_ < 0 ? 1 : 0);
}

std::uint64_t PastRates::packed(const EventPlace& place) const {
  std::uint64_t packed = 0;
  for (const FeatureSource& key : options_.keys) {
    const std::int64_t code = data::code_of(key, place);
    if (code == 0) return 0;
    packed = packed * static_cast<std::uint64_t>(key.codes + 1) + static_cast<std::uint64_t>(code);
  }
  return packed;
}

std::int64_t PastRates::code_of(const EventPlace& place) const {
  if (options_.keys.size() == 1) return data::code_of(options_.keys[0], place);
  const auto found = pairs_.find(packed(place));
  return found == pairs_.end() ? 0 : found->second;
}

template <class Body>
void PastRates::for_events(const Body& body) const {
  const std::span<const std::int64_t> times = store_.times();
  std::array<std::int64_t, kEventsAtOnce> items;
  std::array<std::uint32_t, kEventsAtOnce> signals;
  for (std::int64_t user = 0; user < store_.num_users(); ++user) {
    const Store::UserEvents own = store_.events_of(user);
    for (std::int64_t from = 0; from < own.count; from += kEventsAtOnce) {
      const auto count = static_cast<std::size_t>(std::min(kEventsAtOnce, own.count - from));
      store_.read_items(own.first + from, std::span(items).first(count));
      store_.read_signals(own.first + from, std::span(signals).first(count));
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t event = own.first + from + static_cast<std::int64_t>(i);
        body(EventPlace{user, items[i], event, seconds_of(times[static_cast<std::size_t>(event)])},
             (signals[i] & options_.signals) != 0);
      }
    }
  }
}

void PastRates::number_pairs() {
  double all = 1;
  for (const FeatureSource& key : options_.keys) all *= static_cast<double>(key.codes + 1);
  TGR_CHECK(all < 0x1p63, "a rate of sources with ", all, " codes together; give fewer");
  for_events([&](const EventPlace& place, bool) {
    const std::uint64_t pair = packed(place);
    if (pair != 0 && pairs_.emplace(pair, codes_ + 1).second) ++codes_;
  });
}

// The split's events ask, in the order of what they may know; others are counted on the way.
void PastRates::fill(const EventOrder& order, Split split, const std::vector<Mark>& marks) {
  const std::span<const std::int64_t> times = store_.times();
  const auto time_of = [&](std::int64_t event) { return times[static_cast<std::size_t>(event)]; };
  std::vector<TimedEvent> asking;
  for (const std::int64_t event : order.events) {
    const auto e = static_cast<std::size_t>(event);
    if (order.split[e] != split) continue;
    const std::int64_t late = times[e] - options_.delay * second_;
    asking.push_back({std::min(order.known_until[e], late), event});
  }
  if (!std::is_sorted(asking.begin(), asking.end())) std::sort(asking.begin(), asking.end());
  const bool knows_own = split == Split::kTrain || !order.before_split;
  Counts counts(codes_);
  auto next = order.events.begin();
  for (const TimedEvent& each : asking) {
    for (; next != order.events.end() && time_of(*next) < each.time; ++next) {
      const Split other = order.split[static_cast<std::size_t>(*next)];
      if (other > split || (other == split && !knows_own)) continue;
      const Mark& mark = marks[static_cast<std::size_t>(*next)];
      counts.add(mark.code, mark.positive);
    }
    const auto e = static_cast<std::size_t>(each.event);
    values_[e] = rate(counts, marks[e].code);
  }
}

float PastRates::rate(const Counts& counts, std::int64_t code) const {
  const Count& own = counts.of_code[static_cast<std::size_t>(code)];
  if (code == 0 || own.events == 0) return NAN;
  // Half a positive among one event more: a share that is neither 0 nor 1.
  const double mean = (static_cast<double>(counts.all.positives) + 0.5) /
                      (static_cast<double>(counts.all.events) + 1);
  const double share = (static_cast<double>(own.positives) + options_.prior * mean) /
                       (static_cast<double>(own.events) + options_.prior);
  return static_cast<float>(log_odds(share) - log_odds(mean));
}

}  // namespace turbogr::data
