// Events of a log as its readers (delimited text, Arrow) hand them over, one by one: rows, distinct
// ids and the span of times. What the steps of prepare after parsing start from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/event_rows.h"
#include "turbogr/data/features/event_features.h"
#include "turbogr/data/field.h"
#include "turbogr/data/id_collector.h"
#include "turbogr/data/log_layout.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/prepare_parse.h"

namespace turbogr::data {

// What the first rows of the first log have settled.
struct LogTypes {
  bool integer_users = true;
  bool integer_items = true;
  std::optional<TimeSpelling> spelling;                   // not known yet: no row had a time
  std::vector<std::vector<std::string>> feature_samples;  // fields of each event feature
};

// One event. An id is a number or a text, as LogTypes has it.
struct LogEvent {
  std::int64_t user = 0;
  std::int64_t item = 0;
  std::string_view user_text;
  std::string_view item_text;
  std::int64_t time = 0;  // milliseconds, unless times are integers: then as they came
  bool has_time = false;
  std::uint32_t signals = 0;       // a bit a name of LogLayout::signal_names
  const float* numbers = nullptr;  // [LogLayout::numbers]
};

// Many events at once, a column a thing; all have integer ids, and a time or none of them has.
struct EventColumns {
  std::int64_t count = 0;
  const std::int64_t* users = nullptr;
  const std::int64_t* items = nullptr;
  const std::int64_t* times = nullptr;     // null: none
  const std::uint32_t* signals = nullptr;  // null where the log has no signals
  std::vector<const float*> numbers;       // [LogLayout::numbers]
  // What is in them.
  std::int64_t least_user = 0, most_user = 0, least_item = 0, most_item = 0;
  std::int64_t first_time = 0, last_time = 0;
  bool whole_seconds = true;
};

class EventCollector {
 public:
  EventCollector(const PrepareOptions& options, const MemoryPlan& plan,
                 const std::filesystem::path& folder, PrepareReport& report)
      : options_(options), plan_(plan), folder_(folder), report_(report) {}

  // Once a log, before its events. Later logs must have the columns of the first, whose types
  // stay.
  bool begun() const { return layout_.has_value(); }
  void begin(const LogLayout& layout, const LogTypes& types, const std::string& file);
  void check_same(const LogLayout& layout, const std::string& file) const;

  bool integer_users() const { return types_.integer_users; }
  bool integer_items() const { return types_.integer_items; }
  std::optional<TimeSpelling> spelling() const { return types_.spelling; }
  void set_spelling(TimeSpelling spelling) { types_.spelling = spelling; }
  void count_empty_signals(std::size_t signal, std::int64_t count) {
    empty_signals_[signal] += count;
  }

  // The event's row, for its features; null when --keep-signal leaves it out.
  std::byte* add(const LogEvent& event) {
    if ((event.signals & keep_mask_) != keep_mask_) {
      ++report_.without_signal;
      return nullptr;
    }
    std::int64_t user = event.user;
    std::int64_t item = event.item;
    if (types_.integer_users) {
      users_->add_integer(user);
    } else {
      user = users_->add_string(event.user_text);
    }
    if (types_.integer_items) {
      items_->add_integer(item);
    } else {
      item = items_->add_string(event.item_text);
    }
    if (event.has_time) {
      first_time_ = std::min(first_time_, event.time);
      last_time_ = std::max(last_time_, event.time);
      if (*types_.spelling != TimeSpelling::kInteger) {
        whole_seconds_ = whole_seconds_ && event.time % 1000 == 0;
      }
    } else {
      ++without_time_;
    }
    std::byte* row = rows_->add();
    store_field(row, RowLayout::kUser, user);
    store_field(row, RowLayout::kItem, item);
    store_field(row, RowLayout::kTime, event.time);
    if (row_layout_.signals) store_field(row, RowLayout::kSignals, event.signals);
    if (num_numbers_ > 0) {
      std::memcpy(row + row_layout_.number(0), event.numbers, 4 * num_numbers_);
    }
    return row;
  }
  // The rows of many events, to be filled with fill(), which several threads may do at once; null:
  // these have to be added one by one (rare ids, --keep-signal, features, no room in memory).
  std::byte* reserve(const EventColumns& events);
  void fill(const EventColumns& events, std::byte* rows);
  void add_feature(std::byte* row, std::size_t feature, std::string_view field,
                   std::string_view file, std::int64_t line) {
    store_field(row, row_layout_.number(num_numbers_ + feature),
                event_features_->keep(feature, field, file, line));
  }

  // An item that a table speaks of, whether or not an event does; what is wrong where its id is
  // none of the log's kind.
  FieldError add_item(std::string_view id);

  // After the last event. The tables of the log are the caller's to add.
  ParsedLog finish();

 private:
  void settle_time(ParsedLog& log);

  const PrepareOptions& options_;
  const MemoryPlan& plan_;
  const std::filesystem::path& folder_;
  PrepareReport& report_;

  std::optional<LogLayout> layout_;  // of the first log
  LogTypes types_;
  std::unique_ptr<IdCollector> users_;
  std::unique_ptr<IdCollector> items_;
  std::unique_ptr<IdCollector> table_items_;  // those of tables apart, for the filter
  std::unique_ptr<EventRows> rows_;
  RowLayout row_layout_;
  std::size_t num_numbers_ = 0;
  std::unique_ptr<EventFeatures> event_features_;
  std::uint32_t keep_mask_ = 0;
  std::int64_t first_time_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t last_time_ = std::numeric_limits<std::int64_t>::min();
  std::int64_t without_time_ = 0;
  bool whole_seconds_ = true;
  std::vector<std::int64_t> empty_signals_;
};

}  // namespace turbogr::data
