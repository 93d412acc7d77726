#include "turbogr/data/stats.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <nlohmann/json.hpp>

#include "turbogr/core/escape.h"

namespace turbogr::data {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Quantiles& q) {
  return {{"min", q.min}, {"p10", q.p10}, {"p25", q.p25}, {"p50", q.p50}, {"mean", q.mean},
          {"p75", q.p75}, {"p90", q.p90}, {"p99", q.p99}, {"max", q.max}};
}

Json to_json(const FeatureStats& feature) {
  Json json = {{"of", name_of(feature.about.owner)},
               {"name", feature.about.name},
               {"kind", name_of(feature.about.kind)},
               {"missing", feature.missing_share()}};
  if (feature.about.has_vocabulary()) {
    json["values"] = feature.about.values;
    json["most_frequent"] = Json::array();
    for (const ValueCount& value : feature.most_frequent) {
      json["most_frequent"].push_back({{"value", value.value}, {"count", value.count}});
    }
  } else {
    json["unparsable"] = feature.about.unparsable;
    json["min"] = feature.min;
    json["mean"] = feature.mean;
    json["max"] = feature.max;
  }
  return json;
}

Json to_json(const FeatureTable& table) {
  return {{"of", name_of(table.owner)},
          {"rows", table.rows},
          {"without_events", table.without_events},
          {"repeated", table.repeated},
          {"unreadable", table.unreadable},
          {"without_row", table.without_row}};
}

std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (std::size_t at = digits.size(); at > 3 + (value < 0 ? 1u : 0u);) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string line_of(const char* name, const Quantiles& q) {
  return fmt::format("{:<11}{:>9} {:>9} {:>9} {:>9} {:>11.1f} {:>9} {:>9} {:>9} {:>9}\n", name,
                     grouped(q.min), grouped(q.p10), grouped(q.p25), grouped(q.p50), q.mean,
                     grouped(q.p75), grouped(q.p90), grouped(q.p99), grouped(q.max));
}

std::string date_of(std::int64_t time, TimeUnit unit) {
  const bool before_1970 = unit == TimeUnit::kMilliseconds && time % 1000 < 0;  // rounds down, too
  const auto seconds =
      static_cast<std::time_t>(unit == TimeUnit::kSeconds ? time : time / 1000 - before_1970);
  std::tm parts = {};
  // Times outside the years 0 to 9999 are shown as the numbers they are.
  if (gmtime_r(&seconds, &parts) == nullptr || parts.tm_year < -1900 || parts.tm_year > 8099) {
    return std::to_string(time);
  }
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", parts);
}

}  // namespace

Quantiles quantiles_of(std::vector<std::int64_t> values) {
  Quantiles q;
  if (values.empty()) return q;
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
  };
  double sum = 0;
  for (const std::int64_t value : values) sum += static_cast<double>(value);
  return {.min = values.front(),
          .p10 = at(0.10),
          .p25 = at(0.25),
          .p50 = at(0.50),
          .p75 = at(0.75),
          .p90 = at(0.90),
          .p99 = at(0.99),
          .max = values.back(),
          .mean = sum / static_cast<double>(values.size())};
}

StoreStats stats_of(const Store& store) {
  StoreStats stats{.users = store.num_users(),
                   .items = store.num_items(),
                   .events = store.num_events(),
                   .time_unit = store.time_unit(),
                   .signals = store.manifest().signals};
  std::vector<std::int64_t> lengths;
  for (std::int64_t user = 0; user < stats.users; ++user) {
    lengths.push_back(store.events_of(user).count);
  }
  stats.lengths = quantiles_of(std::move(lengths));

  std::vector<std::int64_t> popularity(static_cast<std::size_t>(store.num_items()));
  std::vector<std::int64_t> set(stats.signals.size());
  std::vector<std::int64_t> items;
  std::vector<std::uint32_t> bits;
  constexpr std::int64_t kBlock = 1 << 16;
  for (std::int64_t event = 0; event < stats.events; event += kBlock) {
    const auto count = static_cast<std::size_t>(std::min(kBlock, stats.events - event));
    items.resize(count);
    store.read_items(event, items);
    for (const std::int64_t item : items) ++popularity[static_cast<std::size_t>(item)];
    if (set.empty()) continue;
    bits.resize(count);
    store.read_signals(event, bits);
    for (const std::uint32_t mask : bits) {
      for (std::size_t bit = 0; bit < set.size(); ++bit) set[bit] += (mask >> bit) & 1u;
    }
  }
  stats.items_without_events = std::count(popularity.begin(), popularity.end(), std::int64_t{0});
  stats.popularity = quantiles_of(std::move(popularity));
  for (const std::int64_t count : set) {
    stats.signal_rates.push_back(
        stats.events > 0 ? static_cast<double>(count) / static_cast<double>(stats.events) : 0);
  }
  stats.repeats = repeated_events(store);
  stats.last_repeats = repeated_targets(
      store, make_windows(store, {.holdout = Holdout("test"), .split = Split::kTest}));
  if (store.has_times() && stats.events > 0) {
    const auto times = store.times();
    const auto [first, last] = std::minmax_element(times.begin(), times.end());
    stats.first_time = *first;
    stats.last_time = *last;
  }
  for (const Feature& feature : store.manifest().features) {
    stats.features.push_back(feature_stats_of(store.feature(feature.owner, feature.name),
                                              store.manifest().rows_of(feature.owner)));
  }
  stats.feature_tables = store.manifest().feature_tables;
  return stats;
}

std::string to_json(const StoreStats& stats) {
  Json json = {
      {"users", stats.users},
      {"items", stats.items},
      {"items_without_events", stats.items_without_events},
      {"events", stats.events},
      {"lengths", to_json(stats.lengths)},
      {"popularity", to_json(stats.popularity)},
      {"repeats", {{"events", stats.repeats.share()}, {"last_events", stats.last_repeats.share()}}},
      {"time", {{"unit", name_of(stats.time_unit)}}},
      {"signals", Json::object()}};
  if (stats.time_unit != TimeUnit::kNone) {
    json["time"]["first"] = stats.first_time;
    json["time"]["last"] = stats.last_time;
    json["time"]["span"] = stats.last_time - stats.first_time;
  }
  for (std::size_t i = 0; i < stats.signals.size(); ++i) {
    json["signals"][stats.signals[i]] = stats.signal_rates[i];
  }
  if (!stats.features.empty()) {
    json["features"] = Json::array();
    for (const FeatureStats& feature : stats.features) json["features"].push_back(to_json(feature));
    json["feature_tables"] = Json::array();
    for (const FeatureTable& table : stats.feature_tables) {
      json["feature_tables"].push_back(to_json(table));
    }
  }
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string to_text(const StoreStats& stats) {
  const std::string unmet =
      stats.items_without_events == 0
          ? ""
          : fmt::format(", {} of them without events", grouped(stats.items_without_events));
  std::string text =
      fmt::format("users      {}\nitems      {}{}\nevents     {}\n", grouped(stats.users),
                  grouped(stats.items), unmet, grouped(stats.events));
  text += fmt::format("\n{:<11}{:>9} {:>9} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9} {:>9}\n", "", "min",
                      "p10", "p25", "p50", "mean", "p75", "p90", "p99", "max");
  text += line_of("lengths", stats.lengths) + line_of("popularity", stats.popularity) + "\n";
  text += fmt::format(
      "repeats    {:.1f} % of events, {:.1f} % of last events are items their user had met; "
      "eval.seen = \"auto\" is \"{}\"\n",
      100 * stats.repeats.share(), 100 * stats.last_repeats.share(),
      stats.last_repeats.share() > kManyRepeats ? "keep" : "drop");
  if (stats.time_unit == TimeUnit::kNone) {
    text += "time       none: the order of events only\n";
  } else {
    text += fmt::format("time       {} to {} UTC, kept in {}\n",
                        date_of(stats.first_time, stats.time_unit),
                        date_of(stats.last_time, stats.time_unit), name_of(stats.time_unit));
  }
  for (std::size_t i = 0; i < stats.signals.size(); ++i) {
    text += fmt::format("{:<10} {:<20} {:.4f} of events\n", i == 0 ? "signals" : "",
                        escaped(stats.signals[i]), stats.signal_rates[i]);
  }
  return text + to_text(stats.features, stats.feature_tables);
}

}  // namespace turbogr::data
