#include "turbogr/plan/planned_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "turbogr/core/check.h"
#include "turbogr/core/progress.h"
#include "turbogr/data/samples/cross_hash.h"

namespace turbogr::plan {
namespace {

using Kind = data::FeatureSource::Kind;

// Of a column that no store is there to ask; 0: its table does not say.
std::int64_t codes_of_table(const run::Config& config, const run::FeatureConfig& feature) {
  const std::string& name = feature.table.empty() ? feature.name : feature.table;
  for (const run::TableConfig& table : config.tables) {
    if (table.name == name) return std::max<std::int64_t>(0, table.rows - 1);
  }
  return 0;
}

data::FeatureSource assumed_source(const std::string& text, const Histories& histories) {
  data::FeatureSource source;
  source.text = text;
  if (text == "user") {
    source.kind = Kind::kUser;
    source.codes = histories.num_users();
  } else if (text == "item") {
    source.kind = Kind::kItem;
    source.codes = histories.num_items();
  } else if (text == "clock.hour" || text == "clock.day") {
    source.kind = text == "clock.hour" ? Kind::kHour : Kind::kDay;
    source.codes = source.kind == Kind::kHour ? 24 : 7;
  } else {
    source.kind = Kind::kColumn;
    source.column.about.owner = text.starts_with("user.")   ? data::FeatureOwner::kUser
                                : text.starts_with("item.") ? data::FeatureOwner::kItem
                                                            : data::FeatureOwner::kEvent;
  }
  return source;
}

data::SampleFeature assumed_feature(const run::Config& config, const run::FeatureConfig& feature,
                                    const Histories& histories) {
  data::SampleFeature reads;
  reads.name = feature.name;
  if (!feature.from.empty()) reads.keys.push_back(assumed_source(feature.from, histories));
  for (const std::string& key : feature.cross) {
    reads.keys.push_back(assumed_source(key, histories));
  }
  TGR_CHECK(!reads.keys.empty() && reads.keys.size() <= 3, "[features.", feature.name,
            "]: it reads ", reads.keys.size(), " sources; give one, or a cross of up to three");
  data::FeatureSource& first = reads.keys[0];
  if (reads.is_cross() || first.kind != Kind::kColumn) return reads;
  first.codes = codes_of_table(config, feature);
  TGR_CHECK(first.codes > 0, "[features.", feature.name, "] reads '", feature.from,
            "', and --data is no store that says how many codes that has; say how many rows its "
            "table has, as in [tables.",
            feature.table.empty() ? feature.name : feature.table,
            "] rows = 1000, or plan with --data STORE");
  return reads;
}

// What a made-up place has of a source: codes are from 1. Whose it is decides it, an event's user
// and position.
std::int64_t assumed_code(const data::FeatureSource& source, const data::EventPlace& place,
                          std::int64_t position) {
  if (source.kind == Kind::kUser) return place.user + 1;
  if (source.kind == Kind::kItem) return place.item + 1;
  std::array<std::int64_t, 3> owner = {place.user, position, 0};
  if (source.of_item()) owner = {place.item, -1, 1};
  if (source.kind == Kind::kColumn && source.column.about.owner == data::FeatureOwner::kUser) {
    owner = {place.user, -2, 2};
  }
  std::uint64_t salt = 0;
  for (const char c : source.text) salt = 31 * salt + static_cast<unsigned char>(c);
  const std::uint64_t hash = data::cross_hash(owner, salt);
  // A column of a cross has codes enough for them all to differ.
  if (source.codes == 0) return static_cast<std::int64_t>(hash >> 1);
  return 1 + static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(source.codes));
}

void assumed_ids(const data::SampleFeature& feature, const data::EventPlace& place,
                 std::int64_t position, std::vector<std::int64_t>& ids) {
  std::array<std::int64_t, 3> codes = {};
  const std::size_t count = feature.keys.size();
  for (std::size_t k = 0; k < count; ++k) {
    codes[k] = assumed_code(feature.keys[k], place, position);
  }
  ids.push_back(feature.is_cross()
                    ? data::cross_row(std::span(codes).first(count), feature.cross_rows)
                    : codes[0]);
}

}  // namespace

PlannedFeatures::PlannedFeatures(const run::Config& config, const Histories& histories)
    : store_(histories.store()) {
  if (config.ranks() || config.features.empty()) return;
  features_ = store_ != nullptr
                  ? run::retrieval_features(config, *store_)
                  : run::retrieval_features(config, [&](const run::FeatureConfig& feature) {
                      return assumed_feature(config, feature, histories);
                    });
  table_rows_ = features_.table_rows();
  std::int64_t first = 0;
  for (const std::int64_t rows : table_rows_) {
    first_rows_.push_back(first);
    first += rows;
  }
  items_ = reads_of(features_.items);
  events_ = reads_of(features_.events);
  prefix_ = reads_of(features_.prefix);
  if (of_items()) return;
  events_.insert(events_.begin(), items_.begin(), items_.end());  // as FeatureInputs does
  items_.clear();
}

std::int64_t PlannedFeatures::num_rows() const {
  return std::accumulate(table_rows_.begin(), table_rows_.end(), std::int64_t{0});
}

std::string PlannedFeatures::text() const {
  if (empty()) return "";
  return fmt::format(
      "{} of items, {} of events, {} of users before the history; {} tables of {} rows; {}",
      features_.items.size(), features_.events.size(), features_.prefix.size(), table_rows_.size(),
      grouped_text(num_rows()),
      store_ != nullptr ? "codes are the store's"
                        : "--data has none: one code a place is assumed, drawn evenly");
}

std::vector<PlannedFeatures::Read> PlannedFeatures::reads_of(
    const std::vector<eval::RetrievalFeature>& features) const {
  std::vector<Read> reads;
  reads.reserve(features.size());
  for (const eval::RetrievalFeature& feature : features) {
    reads.push_back(
        {&feature.reads, first_rows_[feature.rows.table], table_rows_[feature.rows.table]});
  }
  return reads;
}

void PlannedFeatures::read(std::span<const Read> reads, const data::EventPlace& place,
                           std::int64_t position, std::vector<std::int64_t>& rows) const {
  for (const Read& each : reads) {
    const std::size_t before = rows.size();
    if (store_ != nullptr) {
      data::read_ids(*each.feature, place, rows);
    } else {
      assumed_ids(*each.feature, place, position, rows);
    }
    for (std::size_t i = before; i < rows.size(); ++i) {
      TGR_CHECK(rows[i] >= 0 && rows[i] < each.table_rows, "the feature '", each.feature->name,
                "' has the code ", rows[i], " and its table ", each.table_rows,
                " rows; the store is damaged, run `turbogr data verify`");
      rows[i] += each.first_row;
    }
  }
}

void PlannedFeatures::read_window(const data::Window& window, std::span<const std::int64_t> items,
                                  std::vector<std::int64_t>& rows) const {
  data::EventPlace place = {.user = window.user};
  read(prefix_, place, -1, rows);
  if (events_.empty()) return;
  const bool timed = store_ != nullptr && store_->has_times();
  const std::int64_t second =
      timed && store_->time_unit() == data::TimeUnit::kMilliseconds ? 1000 : 1;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    place.item = items[i];
    if (store_ != nullptr) place.event = window.first_event + at;
    if (timed) {
      const std::int64_t time = store_->times()[static_cast<std::size_t>(place.event)];
      place.seconds = time / second - (time % second < 0 ? 1 : 0);
    }
    read(events_, place, at, rows);
  }
}

void PlannedFeatures::read_items(View<const std::int64_t, 1> items,
                                 std::vector<std::int64_t>& rows) const {
  for (std::int64_t i = 0; i < items.shape[0]; ++i) read(items_, {.item = items(i)}, -1, rows);
}

}  // namespace turbogr::plan
