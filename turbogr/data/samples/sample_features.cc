#include "turbogr/data/samples/sample_features.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/nearest_name.h"
#include "turbogr/data/samples/cross_hash.h"
#include "turbogr/data/samples/past_rates.h"

namespace turbogr::data {
namespace {

constexpr std::int64_t kHour = 3600, kDay = 86400;

std::vector<std::string> sources_of(const Store& store) {
  std::vector<std::string> known = {"user", "item"};
  for (const Feature& feature : store.manifest().features) {
    known.push_back(std::string(name_of(feature.owner)) + "." + feature.name);
  }
  if (store.has_times()) known.insert(known.end(), {"clock.hour", "clock.day"});
  return known;
}

FeatureOwner owner_of(std::string_view word) {
  return word == "user"   ? FeatureOwner::kUser
         : word == "item" ? FeatureOwner::kItem
                          : FeatureOwner::kEvent;
}

// Rounded down, before 1970 too.
std::int64_t turns(std::int64_t seconds, std::int64_t unit, std::int64_t around) {
  const std::int64_t whole = seconds / unit - (seconds % unit < 0 ? 1 : 0);
  return (whole % around + around) % around;
}

std::int64_t row_of(const FeatureSource& source, const EventPlace& place) {
  const FeatureOwner owner = source.column.about.owner;
  return owner == FeatureOwner::kUser   ? place.user
         : owner == FeatureOwner::kItem ? place.item
                                        : place.event;
}

}  // namespace

bool FeatureSource::of_item() const {
  return kind == Kind::kItem ||
         (kind == Kind::kColumn && column.about.owner == FeatureOwner::kItem);
}

bool FeatureSource::of_event() const {
  return kind == Kind::kColumn && column.about.owner == FeatureOwner::kEvent;
}

FeatureSource parse_source(const Store& store, const std::string& text) {
  const std::vector<std::string> known = sources_of(store);
  if (std::find(known.begin(), known.end(), text) == known.end()) {
    TGR_CHECK(!text.starts_with("clock."), "'", text, "' cannot be read from '",
              store.folder().string(), "'; a clock is clock.hour or clock.day, and wants times");
    const std::string nearest = nearest_name(text, known);
    std::string list;
    for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
    detail::throw_error("'", store.folder().string(), "' has no '", text, "'; ",
                        nearest.empty() ? "" : "the nearest is '" + nearest + "', and ",
                        "it has: ", list);
  }
  FeatureSource source;
  source.text = text;
  if (text == "user") {
    source.kind = FeatureSource::Kind::kUser;
    source.codes = store.num_users();
  } else if (text == "item") {
    source.kind = FeatureSource::Kind::kItem;
    source.codes = store.num_items();
  } else if (text == "clock.hour") {
    source.kind = FeatureSource::Kind::kHour;
    source.codes = 24;
  } else if (text == "clock.day") {
    source.kind = FeatureSource::Kind::kDay;
    source.codes = 7;
  } else {
    const std::size_t dot = text.find('.');
    source.kind = FeatureSource::Kind::kColumn;
    source.column = store.feature(owner_of(text.substr(0, dot)), text.substr(dot + 1));
    source.codes = source.column.about.values;
  }
  return source;
}

std::int64_t code_of(const FeatureSource& source, const EventPlace& place) {
  switch (source.kind) {
    case FeatureSource::Kind::kUser:
      return place.user + 1;
    case FeatureSource::Kind::kItem:
      return place.item + 1;
    case FeatureSource::Kind::kHour:
      return 1 + turns(place.seconds, kHour, 24);
    case FeatureSource::Kind::kDay:
      return 1 + turns(place.seconds, kDay, 7);
    case FeatureSource::Kind::kColumn:
      break;
  }
  const std::int64_t row = row_of(source, place);
  if (row >= 0) return source.column.code(row);
  if (source.of_event() && place.values != nullptr) {
    for (const EventValue& value : *place.values) {
      if (value.feature == source.column.about.name) return value.code;
    }
  }
  return 0;
}

std::int64_t NumberBuckets::bucket(float x) const {
  if (std::isnan(x)) return 0;
  if (!edges.empty()) {
    return 1 + (std::upper_bound(edges.begin(), edges.end(), x) - edges.begin());
  }
  const double power = std::floor(std::log2(1 + std::max(static_cast<double>(x), 0.0) / unit));
  return 1 + static_cast<std::int64_t>(std::min(power, static_cast<double>(most - 1)));
}

std::int64_t SampleFeature::rows() const {
  if (scale) return NumberScale::kRows;
  if (is_cross()) return cross_rows;
  return 1 + (keys[0].is_number() ? buckets.count() : keys[0].codes);
}

float NumberScale::normalised(float x) const {
  return static_cast<float>(std::clamp((static_cast<double>(x) - mean) / sd, -10.0, 10.0));
}

NumberScale training_scale(const Store& store, const FeatureSource& source, const Holdout& holdout,
                           std::int64_t targets) {
  const std::span<const float> numbers = source.column.numbers;
  // Welford's way: a spread that is small beside the mean is not lost.
  double count = 0, mean = 0, squares = 0;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double x = numbers[static_cast<std::size_t>(i)];
      if (!std::isfinite(x)) continue;
      const double off = x - mean;
      mean += off / ++count;
      squares += off * (x - mean);
    }
  };
  if (source.of_event()) {
    const std::span<const std::int64_t> offsets = store.offsets();
    const std::span<const std::int64_t> times =
        holdout.by_time() ? store.times() : std::span<const std::int64_t>();
    for (std::size_t user = 0; user + 1 < offsets.size(); ++user) {
      const std::int64_t begin = offsets[user], events = offsets[user + 1] - begin;
      const auto own = times.empty() ? times
                                     : times.subspan(static_cast<std::size_t>(begin),
                                                     static_cast<std::size_t>(events));
      const EventRange range =
          holdout.targets_of(Split::kTrain, events, own, store.time_unit(), targets);
      add(begin + range.begin, begin + range.end);
    }
  } else {
    add(0, std::ssize(numbers));
  }
  NumberScale scale = {.mean = mean};
  if (squares > 0) scale.sd = std::sqrt(squares / count);
  return scale;
}

namespace {

float number_of(const SampleFeature& feature, const EventPlace& place) {
  if (feature.rates) return rate_of(*feature.rates, place);
  const FeatureSource& source = feature.keys[0];
  const std::int64_t row = row_of(source, place);
  return row < 0 ? NAN : source.column.numbers[static_cast<std::size_t>(row)];
}

}  // namespace

void read_scaled(const SampleFeature& feature, const EventPlace& place,
                 std::vector<std::int64_t>& ids, std::vector<float>& weights) {
  const float x = number_of(feature, place);
  if (std::isnan(x)) {
    ids.push_back(0);
    weights.push_back(1.0f);
    return;
  }
  ids.insert(ids.end(), {1, 2});
  weights.insert(weights.end(), {feature.scale->normalised(x), 1.0f});
}

void read_ids(const SampleFeature& feature, const EventPlace& place,
              std::vector<std::int64_t>& ids) {
  const FeatureSource& first = feature.keys[0];
  if (feature.is_cross()) {
    std::array<std::int64_t, 3> codes;
    const std::size_t count = feature.keys.size();
    for (std::size_t k = 0; k < count; ++k) codes[k] = code_of(feature.keys[k], place);
    ids.push_back(cross_row(std::span(codes).first(count), feature.cross_rows));
  } else if (first.is_bag()) {
    const std::int64_t row = row_of(first, place);
    if (row < 0) return;
    const std::span<const std::int32_t> bag = first.column.bag(row);
    const auto most = static_cast<std::size_t>(feature.most_ids);
    ids.insert(ids.end(), bag.begin(),
               bag.begin() + static_cast<std::ptrdiff_t>(std::min(bag.size(), most)));
  } else if (first.is_number()) {
    const std::int64_t row = row_of(first, place);
    ids.push_back(
        row < 0 ? 0 : feature.buckets.bucket(first.column.numbers[static_cast<std::size_t>(row)]));
  } else {
    ids.push_back(code_of(first, place));
  }
}

}  // namespace turbogr::data
