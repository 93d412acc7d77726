#include "turbogr/data/samples/samples.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"

namespace turbogr::data {
namespace {

constexpr std::int64_t kSignalsAtOnce = 4096;

std::uint32_t mask_of(const Store& store, const std::vector<std::string>& signals) {
  std::uint32_t mask = 0;
  for (const std::string& name : signals) mask |= 1u << store.signal_bit(name);
  return mask;
}

// Puts a user's targets together, one sample after the other.
class UserSamples {
 public:
  UserSamples(const Store& store, const SampleOptions& options, const SampleHistory& history,
              Samples& samples)
      : store_(store),
        options_(options),
        history_(history),
        samples_(samples),
        times_(store.has_times() ? store.times() : std::span<const std::int64_t>()),
        anchors_(mask_of(store, options.anchors.signals)) {}

  // Targets are the events [from, to) of the user, whose first one is `begin`.
  void add(std::int64_t user, std::int64_t begin, std::int64_t from, std::int64_t to) {
    user_ = user;
    begin_ = begin;
    from_ = from;
    switch (options_.builder) {
      case SampleBuilder::kLast:
        return add_sample(std::max(from, to - options_.targets), to);
      case SampleBuilder::kAnchors:
        return add_anchors(from, to);
      case SampleBuilder::kRequests:
        for (std::int64_t first = from; first < to;) {
          std::int64_t end = first + 1;
          while (end < to && time(end) == time(first)) ++end;
          add_sample(first, end);
          first = end;
        }
        return;
      case SampleBuilder::kBlocks:
        for (std::int64_t first = from; first < to; first += options_.targets) {
          add_sample(first, std::min(to, first + options_.targets));
        }
    }
  }

 private:
  std::int64_t time(std::int64_t event) const { return times_[static_cast<std::size_t>(event)]; }

  void add_anchors(std::int64_t from, std::int64_t to) {
    std::array<std::uint32_t, kSignalsAtOnce> bits;
    for (std::int64_t first = from; first < to; first += kSignalsAtOnce) {
      const std::int64_t count = std::min(kSignalsAtOnce, to - first);
      store_.read_signals(first, std::span(bits).first(static_cast<std::size_t>(count)));
      for (std::int64_t i = 0; i < count; ++i) {
        const bool anchor = anchors_ == 0 || (bits[static_cast<std::size_t>(i)] & anchors_) != 0;
        if (!anchor || first + i - begin_ < options_.anchors.least_history) continue;
        add_sample(first + i, first + i + 1);
      }
    }
  }

  void add_sample(std::int64_t first, std::int64_t end) {
    if (first >= end) return;
    const bool shared = options_.history_before_split && options_.split != Split::kTrain;
    const std::int64_t history_end = shared ? from_ : first;
    const std::int64_t length = options_.prefix + history_.count(begin_, history_end) + end - first;
    TGR_CHECK(length < (std::int64_t{1} << kPositionBits), "user '", store_.user_ids().text(user_),
              "' has a sample of ", length,
              " tokens; shorten data.max_length, or use another samples.builder");
    samples_.windows.push_back({.first_event = first,
                                .length = static_cast<std::int32_t>(length),
                                .user = static_cast<std::int32_t>(user_)});
    samples_.num_targets.push_back(static_cast<std::int32_t>(end - first));
    if (shared) samples_.history_ends.push_back(history_end);
  }

  const Store& store_;
  const SampleOptions& options_;
  const SampleHistory& history_;
  Samples& samples_;
  std::span<const std::int64_t> times_;
  std::uint32_t anchors_;
  std::int64_t user_ = 0, begin_ = 0, from_ = 0;
};

void keep(Samples& samples, std::span<const std::size_t> which) {
  Samples kept;
  kept.prefix = samples.prefix;
  kept.windows.reserve(which.size());
  kept.num_targets.reserve(which.size());
  for (const std::size_t i : which) {
    kept.windows.push_back(samples.windows[i]);
    kept.num_targets.push_back(samples.num_targets[i]);
    if (!samples.history_ends.empty()) kept.history_ends.push_back(samples.history_ends[i]);
  }
  samples = std::move(kept);
}

// A user's lot depends on the seed alone, so that every evaluation asks the same users.
void draw_sample_users(Samples& samples, std::int64_t count, std::uint64_t seed) {
  std::vector<std::int32_t> users;
  for (const Window& window : samples.windows) {
    if (users.empty() || users.back() != window.user) users.push_back(window.user);
  }
  if (count >= std::ssize(users)) return;
  const auto lot = [seed](std::int32_t user) {
    constexpr std::uint64_t kStream = 0x75736572;  // apart from other uses of the seed
    const auto bits = philox(seed, static_cast<std::uint64_t>(user), kStream);
    return std::tuple(bits[0], bits[1], user);
  };
  std::nth_element(users.begin(), users.begin() + count, users.end(),
                   [&](std::int32_t a, std::int32_t b) { return lot(a) < lot(b); });
  users.resize(static_cast<std::size_t>(count));
  std::sort(users.begin(), users.end());
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < samples.windows.size(); ++i) {
    if (std::binary_search(users.begin(), users.end(), samples.windows[i].user)) which.push_back(i);
  }
  keep(samples, which);
}

void sort_by_time(const Store& store, const SampleOptions& options, Samples& samples) {
  if (samples.windows.empty()) return;
  const std::span<const std::int64_t> times = store.times();
  const std::int64_t second = store.time_unit() == TimeUnit::kMilliseconds ? 1000 : 1;
  const auto time = [&](std::size_t i) {
    return times[static_cast<std::size_t>(samples.windows[i].first_event)];
  };
  std::vector<std::size_t> order(samples.windows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::int64_t start = std::numeric_limits<std::int64_t>::max();
  for (const std::size_t i : order) start = std::min(start, time(i));
  const std::int64_t width = options.window_seconds == 0 ? 1 : options.window_seconds * second;
  const auto window = [&](std::size_t i) { return (time(i) - start) / width; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return window(a) < window(b); });
  std::vector<std::size_t> kept;
  for (auto first = order.begin(); first != order.end();) {
    const auto end = std::find_if(first, order.end(),
                                  [&](std::size_t i) { return window(i) != window(*first); });
    kept.insert(kept.end(), first, end - (end - first) % options.window_batch);
    first = end;
  }
  TGR_CHECK(!kept.empty(), "no window of ", options.window_seconds, " seconds has the ",
            options.window_batch,
            " samples of a batch; make samples.window longer or train.batch "
            "smaller, or leave samples.whole_batches out");
  keep(samples, kept);
}

}  // namespace

SampleBuilder sample_builder_from_name(std::string_view name) {
  if (name == "blocks") return SampleBuilder::kBlocks;
  if (name == "requests") return SampleBuilder::kRequests;
  if (name == "last") return SampleBuilder::kLast;
  TGR_CHECK(name == "anchors", "unknown sample builder '", name,
            "'; use blocks, requests, last or anchors");
  return SampleBuilder::kAnchors;
}

std::int64_t Samples::targets() const {
  return std::accumulate(num_targets.begin(), num_targets.end(), std::int64_t{0});
}

std::int64_t Samples::most_targets() const {
  return num_targets.empty() ? 0 : *std::max_element(num_targets.begin(), num_targets.end());
}

SampleHistory::SampleHistory(const Store& store, const SampleOptions& options)
    : store_(store),
      max_history_(options.max_history),
      picks_(options.builder == SampleBuilder::kAnchors && !options.anchors.actions.empty()),
      per_action_(options.anchors.per_action),
      lookback_(options.anchors.lookback) {
  if (!picks_) return;
  for (const std::string& action : options.anchors.actions) {
    masks_.push_back(mask_of(store, {action}));
  }
}

std::int64_t SampleHistory::count(std::int64_t begin, std::int64_t end) const {
  if (!picks_) return std::min(end - begin, max_history_);
  std::vector<std::int64_t> events;
  read(begin, end, events);
  return std::ssize(events);
}

void SampleHistory::read(std::int64_t begin, std::int64_t end,
                         std::vector<std::int64_t>& events) const {
  if (!picks_) {
    events.resize(static_cast<std::size_t>(std::min(end - begin, max_history_)));
    std::iota(events.begin(), events.end(), end - std::ssize(events));
    return;
  }
  events.clear();
  const std::int64_t oldest = std::max(begin, end - lookback_);
  std::array<std::int64_t, 32> left;
  left.fill(per_action_);
  std::array<std::uint32_t, kSignalsAtOnce> bits;
  for (std::int64_t to = end; to > oldest && std::ssize(events) < max_history_;) {
    const std::int64_t from = std::max(oldest, to - kSignalsAtOnce);
    store_.read_signals(from, std::span(bits).first(static_cast<std::size_t>(to - from)));
    for (std::int64_t event = to - 1; event >= from && std::ssize(events) < max_history_; --event) {
      bool taken = false;
      for (std::size_t a = 0; a < masks_.size(); ++a) {
        if ((bits[static_cast<std::size_t>(event - from)] & masks_[a]) == 0 || left[a] == 0) {
          continue;
        }
        --left[a];
        taken = true;
      }
      if (taken) events.push_back(event);
    }
    to = from;
  }
  std::reverse(events.begin(), events.end());
}

Samples make_samples(const Store& store, const SampleOptions& options) {
  TGR_CHECK(options.targets >= 1 && options.max_history >= 0 && options.prefix >= 0, "samples of ",
            options.targets, " targets, ", options.max_history, " events before them and ",
            options.prefix, " prefix tokens; give at least 1, 0 and 0");
  TGR_CHECK(store.num_users() <= std::numeric_limits<std::int32_t>::max(), "a store of ",
            store.num_users(), " users; the loader numbers users with 31 bits");
  TGR_CHECK(options.builder != SampleBuilder::kRequests || store.has_times(), "'",
            store.folder().string(),
            "' has no times, and a request is what one user met at one time; use samples.builder = "
            "\"blocks\" or \"last\"");
  TGR_CHECK(options.order != SampleOrder::kTime || store.has_times(), "'", store.folder().string(),
            "' has no times to order samples by; use samples.order = "
            "\"user\"");
  options.holdout.check(options.split, store.time_unit());
  std::span<const std::int64_t> times;
  if (options.holdout.by_time()) times = store.times();
  Samples samples;
  samples.prefix = options.prefix;
  const SampleHistory history(store, options);
  UserSamples builder(store, options, history, samples);
  const std::span<const std::int64_t> offsets = store.offsets();
  for (std::int64_t user = 0; user < store.num_users(); ++user) {
    const std::int64_t begin = offsets[static_cast<std::size_t>(user)];
    const std::int64_t count = offsets[static_cast<std::size_t>(user) + 1] - begin;
    TGR_CHECK(begin >= 0 && count >= 0 && begin + count <= store.num_events(),
              "the store's offsets of user ", user, " are damaged; run `turbogr data verify`");
    const auto own = times.empty() ? times
                                   : times.subspan(static_cast<std::size_t>(begin),
                                                   static_cast<std::size_t>(count));
    const EventRange range =
        options.holdout.targets_of(options.split, count, own, store.time_unit(), options.targets);
    builder.add(user, begin, begin + range.begin, begin + range.end);
  }
  if (options.split != Split::kTrain && options.max_users > 0) {
    draw_sample_users(samples, options.max_users, options.user_seed);
  }
  if (options.order == SampleOrder::kTime) sort_by_time(store, options, samples);
  return samples;
}

}  // namespace turbogr::data
