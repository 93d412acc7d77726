// A run of events of an Arrow batch, converted to what prepare wants: columns of integers, marks
// and numbers, and what is wrong with which of them. Short enough to stay in the cache.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "turbogr/data/arrow/arrow_log_columns.h"
#include "turbogr/data/event_collector.h"
#include "turbogr/data/field.h"

namespace turbogr::data {

class ArrowRun {
 public:
  static constexpr std::int64_t kEvents = 4096;  // at most

  explicit ArrowRun(const LogLayout& layout);

  // Rows [row, row + count) of the batch, or events [place, place + count) of the user in `row`.
  void set(std::int64_t count, std::int64_t row, std::int64_t place) {
    count_ = count;
    row_ = row;
    place_ = place;
  }
  std::int64_t count() const { return count_; }
  std::int64_t row() const { return row_; }
  std::int64_t place() const { return place_; }

  // Different runs may be converted at the same time.
  void convert(const ArrowLogColumns& columns, bool integer_users, bool integer_items,
               std::optional<TimeSpelling> spelling);
  // Whether ids are integers and nothing at all is wrong or missing; columns() has them all then.
  bool fine() const { return fine_; }
  const EventColumns& columns() const { return columns_; }

  // The values of one column; `errors` count where not all are fine.
  struct Column {
    std::vector<FieldError> errors = std::vector<FieldError>(kEvents);
    bool fine = true;

    FieldError error(std::int64_t i) const {
      return fine ? FieldError::kNone : errors[static_cast<std::size_t>(i)];
    }
  };
  struct Values : Column {
    std::vector<std::int64_t> integers = std::vector<std::int64_t>(kEvents);
  };
  struct Marks : Column {
    std::vector<std::uint8_t> set = std::vector<std::uint8_t>(kEvents);
    std::vector<std::uint8_t> missing = std::vector<std::uint8_t>(kEvents);
    std::int64_t num_missing = 0;
  };
  struct Numbers : Column {
    std::vector<float> values = std::vector<float>(kEvents);
  };
  Values users, items, times;
  std::vector<Marks> marks;  // signals, then labels
  std::vector<Numbers> numbers;

 private:
  template <class Fill, class Spread>
  void fetch(const ArrowLogColumns& columns, int column, Fill&& fill, Spread&& spread) const;
  void read_ids(const ArrowLogColumns& columns, int column, Values& values) const;
  void read_times(const ArrowLogColumns& columns, int column, TimeSpelling spelling);
  void read_numbers(const ArrowLogColumns& columns, int column, Numbers& to) const;
  void read_marks(const ArrowLogColumns& columns);
  void read_label(const ArrowLogColumns& columns, const LabelColumns& label, Marks& to);
  void describe(bool timed, std::optional<TimeSpelling> spelling);

  std::int64_t count_ = 0;
  std::int64_t row_ = 0;    // the first, or the user's
  std::int64_t place_ = 0;  // of the first, in the user's lists
  bool fine_ = false;
  Numbers label_numbers_;
  std::vector<LabelVerdict> verdicts_, test_verdicts_;  // of the label at hand
  std::vector<std::uint32_t> signals_;                  // the marks of an event in one word
  EventColumns columns_;
};

}  // namespace turbogr::data
