#include "turbogr/data/arrow/arrow_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/data/arrow/arrow_column.h"
#include "turbogr/data/arrow/arrow_log_columns.h"
#include "turbogr/data/interrupt.h"

namespace turbogr::data {
namespace {

constexpr std::int64_t kRun = 4096;  // events converted at a time: they stay in the cache
constexpr int kSampleRows = 1000;

class ArrowLogReader {
 public:
  ArrowLogReader(ArrowStream& stream, const PrepareOptions& options, EventCollector& events,
                 BadRows& bad, PrepareReport& report)
      : stream_(stream),
        options_(options),
        events_(events),
        bad_(bad),
        report_(report),
        columns_(stream, options.columns),
        layout_(columns_.layout()),
        marks_(layout_.signals.size() + layout_.labels.size()),
        numbers_(layout_.numbers.size()) {}

  void run() {
    bool begun = false;
    while (stream_.next()) {
      const ArrowArray& batch = stream_.batch();
      columns_.bind(batch);
      if (!begun) begin(batch.length);
      begun = true;
      if (columns_.sequential()) {
        for (std::int64_t row = 0; row < batch.length; ++row) read_user(row);
      } else {
        for (std::int64_t row = 0; row < batch.length; row += kRun) {
          check_interrupt();
          read_run(std::min(kRun, batch.length - row), row, 0);
        }
      }
      rows_before_ += batch.length;
    }
    if (!begun) begin(0);
  }

 private:
  // The values of one column over a run of events.
  struct Values {
    std::vector<std::int64_t> integers = std::vector<std::int64_t>(kRun);
    std::vector<FieldError> errors = std::vector<FieldError>(kRun);
    bool fine = true;
  };
  struct Marks {
    std::vector<std::uint8_t> set = std::vector<std::uint8_t>(kRun);
    std::vector<std::uint8_t> missing = std::vector<std::uint8_t>(kRun);
    std::vector<FieldError> errors = std::vector<FieldError>(kRun);
    bool fine = true;
  };
  struct Numbers {
    std::vector<float> values = std::vector<float>(kRun);
    std::vector<FieldError> errors = std::vector<FieldError>(kRun);
    bool fine = true;
  };

  void begin(std::int64_t rows);
  bool integer_ids(int column);
  TimeSpelling spelling_of(int column, std::int64_t rows);
  std::vector<std::string> sample(int column, std::int64_t rows);
  void read_user(std::int64_t row);
  void read_run(std::int64_t count, std::int64_t row, std::int64_t place);
  template <class Fill, class Spread>
  void fetch(int column, std::int64_t count, std::int64_t row, std::int64_t place, Fill&& fill,
             Spread&& spread);
  void read_times(std::int64_t count, std::int64_t row, std::int64_t place);
  void read_marks(std::int64_t count, std::int64_t row, std::int64_t place);
  bool take_id(bool integer, int column, const Values& values, std::int64_t i, std::int64_t& id,
               std::string_view& text, std::string& scratch);
  void reject(FieldError error, int column, std::int64_t i);

  // Where event i of the run lies in a column.
  std::pair<const ArrowColumn*, std::int64_t> cell(int column, std::int64_t i) {
    const ArrowColumn& found = columns_[column];
    if (!columns_.sequential()) return {&found, row_ + i};
    if (!found.is_list()) return {&found, row_};
    return {&found.values(), found.span(row_).begin + place_ + i};
  }

  ArrowStream& stream_;
  const PrepareOptions& options_;
  EventCollector& events_;
  BadRows& bad_;
  PrepareReport& report_;
  ArrowLogColumns columns_;
  const LogLayout& layout_;

  std::int64_t rows_before_ = 0;  // of earlier batches
  std::int64_t row_ = 0;          // the run's first, or the user's
  std::int64_t place_ = 0;        // in the user's lists, of the run's first
  Values users_;
  Values items_;
  Values times_;
  std::vector<Marks> marks_;  // signals, then labels
  std::vector<Numbers> numbers_;
  Numbers label_numbers_;
  std::string user_scratch_, item_scratch_, scratch_;
};

bool ArrowLogReader::integer_ids(int column) {
  const ArrowColumn& found =
      columns_[column].is_list() ? columns_[column].values() : columns_[column];
  if (options_.ids != "auto") return options_.ids == "integer";
  return !found.is_text();
}

TimeSpelling ArrowLogReader::spelling_of(int column, std::int64_t rows) {
  const ArrowColumn& found =
      columns_[column].is_list() ? columns_[column].values() : columns_[column];
  if (found.is_temporal()) return TimeSpelling::kIso;
  if (found.is_floating()) return TimeSpelling::kDecimalSeconds;
  if (!found.is_text()) return TimeSpelling::kInteger;
  for (const std::string& text : sample(column, rows)) {
    if (!text.empty()) return guess_time_spelling(text);
  }
  return TimeSpelling::kIso;
}

// The first values of a column, as text.
std::vector<std::string> ArrowLogReader::sample(int column, std::int64_t rows) {
  std::vector<std::string> found;
  ArrowColumn& values = columns_[column];
  for (std::int64_t row = 0; row < rows && found.size() < kSampleRows; ++row) {
    if (!values.is_list() || !columns_.sequential()) {
      found.emplace_back(values.text(row, scratch_));
      continue;
    }
    const ArrowColumn::Span span = values.span(row);
    for (std::int64_t i = span.begin; i < span.end && found.size() < kSampleRows; ++i) {
      found.emplace_back(values.values().text(i, scratch_));
    }
  }
  std::erase_if(found, [](const std::string& text) { return text.empty(); });
  return found;
}

void ArrowLogReader::begin(std::int64_t rows) {
  TGR_CHECK(options_.ids == "auto" || options_.ids == "integer" || options_.ids == "string",
            "--ids is auto, integer or string, not '", options_.ids, "'");
  LogTypes types;
  types.integer_users = integer_ids(layout_.user);
  types.integer_items = integer_ids(layout_.item);
  if (layout_.time >= 0) types.spelling = spelling_of(layout_.time, rows);
  if (!events_.begun()) {
    for (const int column : layout_.features) types.feature_samples.push_back(sample(column, rows));
    events_.begin(layout_, types, stream_.name());
    return;
  }
  events_.check_same(layout_, stream_.name());
  const auto same_ids = [&](bool is, bool was, int column) {
    TGR_CHECK(is == was || options_.ids != "auto", columns_[column].where(), " has ",
              is ? "numbers" : "text", " where the logs before it have ", was ? "numbers" : "text",
              "; give --ids string to take all as text");
  };
  same_ids(types.integer_users, events_.integer_users(), layout_.user);
  same_ids(types.integer_items, events_.integer_items(), layout_.item);
  if (!events_.spelling() || !types.spelling) return;
  const auto integer = [](TimeSpelling spelling) { return spelling == TimeSpelling::kInteger; };
  TGR_CHECK(integer(*types.spelling) == integer(*events_.spelling()),
            columns_[layout_.time].where(), " has ",
            integer(*types.spelling) ? "plain numbers" : "dates", " where the logs before it have ",
            integer(*types.spelling) ? "dates" : "plain numbers", "; cast one of them");
}

// One row is all that a user did.
void ArrowLogReader::read_user(std::int64_t row) {
  check_interrupt();
  const ArrowColumn::Span items = columns_[layout_.item].span(row);
  const std::int64_t length = items.end - items.begin;
  const auto check_length = [&](int column) {
    if (column < 0 || !columns_[column].is_list()) return true;
    const ArrowColumn::Span own = columns_[column].span(row);
    if (own.end - own.begin == length) return true;
    ++report_.rows;
    bad_.add(BadRow::kColumns,
             {.file = stream_.name(),
              .line = rows_before_ + row + 1,
              .column = layout_.names[static_cast<std::size_t>(column)],
              .text = ""},
             [&] {
               return fmt::format("a list of {} values beside {} items", own.end - own.begin,
                                  length);
             });
    return false;
  };
  bool same = check_length(layout_.time);
  for (const auto* list : {&layout_.signals, &layout_.numbers, &layout_.features}) {
    for (const int column : *list) same = same && check_length(column);
  }
  for (const auto& [column, label] : layout_.labels) same = same && check_length(column);
  if (!same) return;
  for (std::int64_t place = 0; place < length; place += kRun) {
    read_run(std::min(kRun, length - place), row, place);
  }
}

// Calls fill(column, row, count) where a column has a value an event, and fill of one value and
// then spread() where it has one for the whole row.
template <class Fill, class Spread>
void ArrowLogReader::fetch(int column, std::int64_t count, std::int64_t row, std::int64_t place,
                           Fill&& fill, Spread&& spread) {
  ArrowColumn& found = columns_[column];
  if (!columns_.sequential()) {
    fill(found, row, count);
  } else if (found.is_list()) {
    fill(found.values(), found.span(row).begin + place, count);
  } else {
    fill(found, row, 1);
    spread();
  }
}

void ArrowLogReader::read_times(std::int64_t count, std::int64_t row, std::int64_t place) {
  fetch(
      layout_.time, count, row, place,
      [&](const ArrowColumn& from, std::int64_t first, std::int64_t values) {
        times_.fine = from.times(first, values, *events_.spelling(), times_.integers.data(),
                                 times_.errors.data());
      },
      [&] {
        std::fill_n(times_.integers.begin(), count, times_.integers[0]);
        std::fill_n(times_.errors.begin(), count, times_.errors[0]);
      });
}

void ArrowLogReader::read_marks(std::int64_t count, std::int64_t row, std::int64_t place) {
  for (std::size_t i = 0; i < layout_.signals.size(); ++i) {
    Marks& marks = marks_[i];
    static_assert(sizeof(bool) == 1);
    fetch(
        layout_.signals[i], count, row, place,
        [&](const ArrowColumn& from, std::int64_t first, std::int64_t values) {
          marks.fine =
              from.signals(first, values, reinterpret_cast<bool*>(marks.set.data()),
                           reinterpret_cast<bool*>(marks.missing.data()), marks.errors.data());
        },
        [&] {
          std::fill_n(marks.set.begin(), count, marks.set[0]);
          std::fill_n(marks.missing.begin(), count, marks.missing[0]);
          std::fill_n(marks.errors.begin(), count, marks.errors[0]);
        });
  }
  const auto read_numbers = [&](int column, Numbers& numbers) {
    fetch(
        column, count, row, place,
        [&](const ArrowColumn& from, std::int64_t first, std::int64_t values) {
          numbers.fine = from.numbers(first, values, numbers.values.data(), numbers.errors.data());
        },
        [&] {
          std::fill_n(numbers.values.begin(), count, numbers.values[0]);
          std::fill_n(numbers.errors.begin(), count, numbers.errors[0]);
        });
  };
  for (std::size_t i = 0; i < layout_.labels.size(); ++i) {
    const auto& [column, label] = layout_.labels[i];
    Marks& marks = marks_[layout_.signals.size() + i];
    read_numbers(column, label_numbers_);
    marks.fine = label_numbers_.fine;
    marks.errors = label_numbers_.errors;
    for (std::int64_t e = 0; e < count; ++e) {
      const auto at = static_cast<std::size_t>(e);
      const float value = label_numbers_.values[at];
      marks.set[at] = label.holds(value) ? 1 : 0;
      marks.missing[at] = value != value ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < layout_.numbers.size(); ++i) {
    read_numbers(layout_.numbers[i], numbers_[i]);
  }
}

void ArrowLogReader::reject(FieldError error, int column, std::int64_t i) {
  const auto [found, row] = cell(column, i);
  const std::string_view text = found->text(row, scratch_);
  const bool id = column == layout_.user || column == layout_.item;
  const BadRow kind = error == FieldError::kEmpty      ? BadRow::kEmptyId
                      : error == FieldError::kTooLong  ? BadRow::kLongId
                      : error == FieldError::kTooLarge ? BadRow::kTooLarge
                      : column == layout_.time         ? BadRow::kBadTime
                                                       : BadRow::kNotANumber;
  bad_.add(kind,
           {.file = stream_.name(),
            .line = rows_before_ + (columns_.sequential() ? row_ : row_ + i) + 1,
            .column = layout_.names[static_cast<std::size_t>(column)],
            .text = text},
           [&]() -> std::string {
             if (kind == BadRow::kTooLarge && column == layout_.time) {
               return "times are seconds or milliseconds";
             }
             return kind == BadRow::kNotANumber && id ? "--ids string takes any text" : "";
           });
}

// False: the row is bad and has been said to be.
bool ArrowLogReader::take_id(bool integer, int column, const Values& values, std::int64_t i,
                             std::int64_t& id, std::string_view& text, std::string& scratch) {
  const auto at = static_cast<std::size_t>(i);
  if (integer) {
    if (!values.fine && values.errors[at] != FieldError::kNone) {
      reject(values.errors[at], column, i);
      return false;
    }
    id = values.integers[at];
    return true;
  }
  const auto [found, row] = cell(column, i);
  text = found->text(row, scratch);
  if (text.empty() || text.size() > kLongestId) {
    reject(text.empty() ? FieldError::kEmpty : FieldError::kTooLong, column, i);
    return false;
  }
  return true;
}

// Events of rows [row, row + count), or those from `place` on of the user in `row`.
void ArrowLogReader::read_run(std::int64_t count, std::int64_t row, std::int64_t place) {
  row_ = row;
  place_ = place;
  report_.rows += count;
  const auto read_ids = [&](int column, Values& values) {
    fetch(
        column, count, row, place,
        [&](const ArrowColumn& from, std::int64_t first, std::int64_t number) {
          values.fine = from.integers(first, number, values.integers.data(), values.errors.data());
        },
        [&] {
          std::fill_n(values.integers.begin(), count, values.integers[0]);
          std::fill_n(values.errors.begin(), count, values.errors[0]);
        });
  };
  if (events_.integer_users()) read_ids(layout_.user, users_);
  if (events_.integer_items()) read_ids(layout_.item, items_);
  if (layout_.time >= 0) read_times(count, row, place);
  read_marks(count, row, place);

  float numbers[kMostNumbers];
  for (std::int64_t e = 0; e < count; ++e) {
    const auto at = static_cast<std::size_t>(e);
    LogEvent event;
    event.numbers = numbers;
    if (layout_.time >= 0) {
      event.has_time = times_.fine || times_.errors[at] == FieldError::kNone;
      if (event.has_time) {
        event.time = times_.integers[at];
      } else if (times_.errors[at] != FieldError::kEmpty) {
        reject(times_.errors[at], layout_.time, e);
        continue;
      }
    }
    bool fine = true;
    for (std::size_t i = 0; i < marks_.size() && fine; ++i) {
      const Marks& marks = marks_[i];
      if (!marks.fine && marks.errors[at] != FieldError::kNone) {
        const bool label = i >= layout_.signals.size();
        reject(marks.errors[at],
               label ? layout_.labels[i - layout_.signals.size()].first : layout_.signals[i], e);
        fine = false;
      }
      event.signals |= std::uint32_t{marks.set[at]} << i;
    }
    for (std::size_t i = 0; i < numbers_.size() && fine; ++i) {
      numbers[i] = numbers_[i].values[at];
      if (numbers_[i].fine || numbers_[i].errors[at] == FieldError::kNone) continue;
      reject(numbers_[i].errors[at], layout_.numbers[i], e);
      fine = false;
    }
    if (!fine || !take_id(events_.integer_users(), layout_.user, users_, e, event.user,
                          event.user_text, user_scratch_)) {
      continue;
    }
    if (!take_id(events_.integer_items(), layout_.item, items_, e, event.item, event.item_text,
                 item_scratch_)) {
      continue;
    }
    for (std::size_t i = 0; i < marks_.size(); ++i) {
      if (marks_[i].missing[at] != 0) events_.count_empty_signal(i);
    }
    std::byte* to = events_.add(event);
    if (to == nullptr) continue;
    for (std::size_t i = 0; i < layout_.features.size(); ++i) {
      const auto [found, place_in] = cell(layout_.features[i], e);
      events_.add_feature(to, i, found->text(place_in, scratch_), stream_.name(),
                          rows_before_ + (columns_.sequential() ? row_ : row_ + e) + 1);
    }
  }
}

}  // namespace

void read_arrow_log(ArrowStream& stream, const PrepareOptions& options, EventCollector& events,
                    BadRows& bad, PrepareReport& report) {
  ArrowLogReader(stream, options, events, bad, report).run();
}

}  // namespace turbogr::data
