#include "turbogr/data/event_collector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::data {

void EventCollector::begin(const LogLayout& layout, const LogTypes& types,
                           const std::string& file) {
  layout_ = layout;
  types_ = types;
  const auto kind = [](bool integer) { return integer ? IdKind::kInt64 : IdKind::kString; };
  users_ =
      std::make_unique<IdCollector>(kind(types.integer_users), folder_ / "users.tmp", plan_.ids);
  items_ =
      std::make_unique<IdCollector>(kind(types.integer_items), folder_ / "items.tmp", plan_.ids);
  if (options_.keep_items_without_events) {
    table_items_ = std::make_unique<IdCollector>(kind(types.integer_items),
                                                 folder_ / "table_items.tmp", plan_.ids);
  }
  num_numbers_ = layout.numbers.size();
  row_layout_ = {.signals = !layout.signal_names.empty(),
                 .num_numbers = num_numbers_ + layout.features.size()};
  event_features_ = std::make_unique<EventFeatures>(
      parse_feature_requests(options_.columns.features, FeatureOwner::kEvent),
      types.feature_samples, plan_.lookup);
  rows_ = std::make_unique<EventRows>(row_layout_, plan_.row_capacity(row_layout_.stride()),
                                      folder_ / "rows.tmp");
  empty_signals_.assign(layout.signal_names.size(), 0);
  if (options_.keep_signal.empty()) return;
  const auto& names = layout.signal_names;
  const auto at = std::find(names.begin(), names.end(), options_.keep_signal);
  TGR_CHECK(!names.empty(), "--keep-signal ", options_.keep_signal, ": '", file,
            "' has no signal columns; name them with --signal-columns, or make one with --label");
  TGR_CHECK(at != names.end(), "--keep-signal ", options_.keep_signal,
            " is not among the signals: ", fmt::format("{}", fmt::join(names, ", ")));
  keep_mask_ = std::uint32_t{1} << (at - names.begin());
}

void EventCollector::check_same(const LogLayout& layout, const std::string& file) const {
  TGR_CHECK(layout.signal_names == layout_->signal_names &&
                layout.number_names == layout_->number_names &&
                (layout.time >= 0) == (layout_->time >= 0),
            "'", file, "' does not have the columns of the first file (",
            printable(fmt::format("{}", fmt::join(layout_->names, ", ")), 600),
            "); prepare it apart or name the columns to keep");
}

std::byte* EventCollector::reserve(const EventColumns& events) {
  const bool plain = types_.integer_users && types_.integer_items && keep_mask_ == 0 &&
                     event_features_->size() == 0 && events.count > 0;
  if (!plain || !users_->make_common(events.least_user, events.most_user) ||
      !items_->make_common(events.least_item, events.most_item)) {
    return nullptr;
  }
  std::byte* rows = rows_->add_piece(static_cast<std::size_t>(events.count));
  if (rows == nullptr) return nullptr;
  if (events.times == nullptr) {
    without_time_ += events.count;
  } else {
    first_time_ = std::min(first_time_, events.first_time);
    last_time_ = std::max(last_time_, events.last_time);
    whole_seconds_ = whole_seconds_ && events.whole_seconds;
  }
  return rows;
}

void EventCollector::fill(const EventColumns& events, std::byte* rows) {
  const std::size_t stride = row_layout_.stride();
  const auto count = static_cast<std::size_t>(events.count);
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* row = rows + i * stride;
    users_->add_common(events.users[i]);
    items_->add_common(events.items[i]);
    store_field(row, RowLayout::kUser, events.users[i]);
    store_field(row, RowLayout::kItem, events.items[i]);
    store_field(row, RowLayout::kTime, events.times != nullptr ? events.times[i] : 0);
    if (row_layout_.signals) store_field(row, RowLayout::kSignals, events.signals[i]);
    for (std::size_t n = 0; n < num_numbers_; ++n) {
      store_field(row, row_layout_.number(n), events.numbers[n][i]);
    }
  }
}

FieldError EventCollector::add_item(std::string_view id) {
  if (!types_.integer_items) {
    if (id.empty()) return FieldError::kEmpty;
    if (id.size() > kLongestId) return FieldError::kTooLong;
    items_->add_string(id);
    table_items_->add_string(id);
    return FieldError::kNone;
  }
  std::int64_t number = 0;
  const FieldError error = parse_integer(id, number);
  if (error != FieldError::kNone) return error;
  items_->add_integer(number);
  table_items_->add_integer(number);
  return FieldError::kNone;
}

void EventCollector::settle_time(ParsedLog& log) {
  TGR_CHECK(options_.time_unit == "auto" || options_.time_unit == "s" || options_.time_unit == "ms",
            "--time-unit is auto, s or ms, not '", options_.time_unit, "'");
  const std::int64_t rows = rows_->size();
  if (without_time_ > 0 || layout_->time < 0) {
    if (layout_->time >= 0) {
      report_.remarks.push_back(fmt::format(
          "{} of {} rows have no time: the store keeps the order of the files and no times",
          without_time_, rows));
    } else if (options_.columns.time != "none") {
      report_.remarks.push_back("no time column: the store keeps the order of the files");
    }
    return;
  }
  log.first_time = first_time_;
  log.last_time = last_time_;
  if (*types_.spelling != TimeSpelling::kInteger) {
    log.time_unit = whole_seconds_ ? TimeUnit::kSeconds : TimeUnit::kMilliseconds;
    log.time_divisor = whole_seconds_ ? 1000 : 1;
    return;
  }
  // Seconds reach 10^11 in the year 5138; milliseconds did in 1973.
  constexpr std::int64_t kMillisecondsFrom = 100'000'000'000;
  const bool milliseconds = options_.time_unit == "auto"
                                ? layout_->time_named_ms || last_time_ >= kMillisecondsFrom
                                : options_.time_unit == "ms";
  log.time_unit = milliseconds ? TimeUnit::kMilliseconds : TimeUnit::kSeconds;
  if (options_.time_unit == "auto" && milliseconds && first_time_ > 0 &&
      first_time_ < kMillisecondsFrom) {
    report_.remarks.push_back(fmt::format(
        "times from {} to {}: taken as milliseconds, and the first are then before 1973. If the "
        "log mixes seconds and milliseconds, mend it; if not, name the unit (--time-unit s or ms)",
        first_time_, last_time_));
  }
}

ParsedLog EventCollector::finish() {
  TGR_CHECK(rows_->size() > 0, "no usable row in the input: ", report_.rows, " rows read, ",
            report_.bad_rows, " bad, ", report_.without_signal, " without the signal asked for");
  for (std::size_t i = 0; i < empty_signals_.size(); ++i) {
    if (empty_signals_[i] == 0) continue;
    std::string what = layout_->signal_names[i];
    if (i >= layout_->signals.size()) {
      const Label& label = layout_->labels[i - layout_->signals.size()].label;
      const std::vector<std::string> columns = columns_of(label);
      what = fmt::format("--label '{}': {}{}", label.name, columns.size() > 1 ? "one of " : "",
                         fmt::join(columns, ", "));
    }
    report_.remarks.push_back(
        fmt::format("{} is empty in {} rows; taken as not set", what, empty_signals_[i]));
  }
  ParsedLog log;
  settle_time(log);
  rows_->close();
  log.users = users_->finish();
  users_.reset();
  log.items = items_->finish();
  items_.reset();
  if (table_items_) log.table_items = table_items_->finish();
  log.rows = std::move(rows_);
  for (const std::string& remark : event_features_->remarks()) report_.remarks.push_back(remark);
  log.event_features = std::move(event_features_);
  log.signal_names = layout_->signal_names;
  log.number_names = layout_->number_names;
  return log;
}

}  // namespace turbogr::data
