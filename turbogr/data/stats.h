// What a store holds, in figures: counts, quantiles of history lengths and item popularity, time
// span.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/data/features/feature_stats.h"
#include "turbogr/data/repeats.h"
#include "turbogr/data/store.h"

namespace turbogr::data {

// Quantile q of n sorted values is value floor(q * (n - 1)): always one that occurs.
struct Quantiles {
  std::int64_t min = 0, p10 = 0, p25 = 0, p50 = 0, p75 = 0, p90 = 0, p99 = 0, max = 0;
  double mean = 0;
};

struct StoreStats {
  std::int64_t users = 0;
  std::int64_t items = 0;
  std::int64_t items_without_events = 0;
  std::int64_t events = 0;
  Quantiles lengths;         // events a user
  Quantiles popularity;      // events an item
  RepeatCount repeats;       // events of items that their user had met before
  RepeatCount last_repeats;  // the same of last events alone: what an evaluation asks for
  TimeUnit time_unit = TimeUnit::kNone;
  std::int64_t first_time = 0;
  std::int64_t last_time = 0;
  std::vector<std::string> signals;
  std::vector<double> signal_rates;  // share of events that carry each
  std::vector<FeatureStats> features;
  std::vector<FeatureTable> feature_tables;
};

Quantiles quantiles_of(std::vector<std::int64_t> values);

StoreStats stats_of(const Store& store);

std::string to_json(const StoreStats& stats);
std::string to_text(const StoreStats& stats);  // lines for people

}  // namespace turbogr::data
