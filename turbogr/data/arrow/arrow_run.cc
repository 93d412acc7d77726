#include "turbogr/data/arrow/arrow_run.h"

#include <algorithm>

namespace turbogr::data {

ArrowRun::ArrowRun(const LogLayout& layout)
    : marks(layout.signals.size() + layout.labels.size()),
      numbers(layout.numbers.size()),
      verdicts_(layout.labels.empty() ? 0 : kEvents),
      test_verdicts_(verdicts_.size()),
      signals_(marks.empty() ? 0 : kEvents) {}

// Calls fill(column, row, count) where a column has a value an event, and fill of one value and
// then spread() where it has one for the whole row.
template <class Fill, class Spread>
void ArrowRun::fetch(const ArrowLogColumns& columns, int column, Fill&& fill,
                     Spread&& spread) const {
  const ArrowColumn& found = columns[column];
  if (!columns.sequential()) {
    fill(found, row_, count_);
  } else if (found.is_list()) {
    fill(found.values(), found.span(row_).begin + place_, count_);
  } else {
    fill(found, row_, 1);
    spread();
  }
}

void ArrowRun::read_ids(const ArrowLogColumns& columns, int column, Values& values) const {
  fetch(
      columns, column,
      [&](const ArrowColumn& from, std::int64_t first, std::int64_t count) {
        values.fine = from.integers(first, count, values.integers.data(), values.errors.data());
      },
      [&] {
        std::fill_n(values.integers.begin(), count_, values.integers[0]);
        std::fill_n(values.errors.begin(), count_, values.errors[0]);
      });
}

void ArrowRun::read_times(const ArrowLogColumns& columns, int column, TimeSpelling spelling) {
  fetch(
      columns, column,
      [&](const ArrowColumn& from, std::int64_t first, std::int64_t count) {
        times.fine = from.times(first, count, spelling, times.integers.data(), times.errors.data());
      },
      [&] {
        std::fill_n(times.integers.begin(), count_, times.integers[0]);
        std::fill_n(times.errors.begin(), count_, times.errors[0]);
      });
}

void ArrowRun::read_numbers(const ArrowLogColumns& columns, int column, Numbers& to) const {
  fetch(
      columns, column,
      [&](const ArrowColumn& from, std::int64_t first, std::int64_t count) {
        to.fine = from.numbers(first, count, to.values.data(), to.errors.data());
      },
      [&] {
        std::fill_n(to.values.begin(), count_, to.values[0]);
        std::fill_n(to.errors.begin(), count_, to.errors[0]);
      });
}

void ArrowRun::read_label(const ArrowLogColumns& columns, const LabelColumns& label, Marks& to) {
  const auto count = static_cast<std::size_t>(count_);
  std::fill_n(verdicts_.begin(), count, LabelVerdict::kSet);
  std::fill_n(to.errors.begin(), count, FieldError::kNone);
  to.fine = true;
  std::string scratch;
  for (std::size_t t = 0; t < label.columns.size(); ++t) {
    const LabelTest& test = label.label.tests[t];
    if (test.of_text) {
      fetch(
          columns, label.columns[t],
          [&](const ArrowColumn& from, std::int64_t first, std::int64_t values) {
            for (std::int64_t i = 0; i < values; ++i) {
              test_verdicts_[static_cast<std::size_t>(i)] = test.of(from.text(first + i, scratch));
            }
          },
          [&] { std::fill_n(test_verdicts_.begin(), count, test_verdicts_[0]); });
    } else {
      read_numbers(columns, label.columns[t], label_numbers_);
      to.fine = to.fine && label_numbers_.fine;
      for (std::size_t i = 0; i < count; ++i) {
        test_verdicts_[i] = test.of(label_numbers_.values[i]);
        if (!label_numbers_.fine && to.errors[i] == FieldError::kNone) {
          to.errors[i] = label_numbers_.errors[i];
        }
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      verdicts_[i] = std::max(verdicts_[i], test_verdicts_[i]);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    to.set[i] = verdicts_[i] == LabelVerdict::kSet ? 1 : 0;
    to.missing[i] = verdicts_[i] == LabelVerdict::kMissing ? 1 : 0;
  }
}

void ArrowRun::read_marks(const ArrowLogColumns& columns) {
  const LogLayout& layout = columns.layout();
  static_assert(sizeof(bool) == 1);
  for (std::size_t i = 0; i < layout.signals.size(); ++i) {
    Marks& to = marks[i];
    fetch(
        columns, layout.signals[i],
        [&](const ArrowColumn& from, std::int64_t first, std::int64_t count) {
          to.fine = from.signals(first, count, reinterpret_cast<bool*>(to.set.data()),
                                 reinterpret_cast<bool*>(to.missing.data()), to.errors.data());
        },
        [&] {
          std::fill_n(to.set.begin(), count_, to.set[0]);
          std::fill_n(to.missing.begin(), count_, to.missing[0]);
          std::fill_n(to.errors.begin(), count_, to.errors[0]);
        });
  }
  for (std::size_t i = 0; i < layout.labels.size(); ++i) {
    read_label(columns, layout.labels[i], marks[layout.signals.size() + i]);
  }
  for (Marks& each : marks) {
    each.num_missing =
        std::count(each.missing.begin(), each.missing.begin() + count_, std::uint8_t{1});
  }
}

void ArrowRun::convert(const ArrowLogColumns& columns, bool integer_users, bool integer_items,
                       std::optional<TimeSpelling> spelling) {
  const LogLayout& layout = columns.layout();
  const bool timed = layout.time >= 0;
  if (integer_users) read_ids(columns, layout.user, users);
  if (integer_items) read_ids(columns, layout.item, items);
  if (timed) read_times(columns, layout.time, *spelling);
  read_marks(columns);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    read_numbers(columns, layout.numbers[i], numbers[i]);
  }
  const auto all_fine = [](const Column& column) { return column.fine; };
  fine_ = integer_users && users.fine && integer_items && items.fine && (!timed || times.fine) &&
          std::all_of(marks.begin(), marks.end(), all_fine) &&
          std::all_of(numbers.begin(), numbers.end(), all_fine);
  if (fine_) describe(timed, spelling);
}

void ArrowRun::describe(bool timed, std::optional<TimeSpelling> spelling) {
  const auto range = [&](const Values& values, std::int64_t& least, std::int64_t& most) {
    least = most = values.integers[0];
    for (std::int64_t i = 1; i < count_; ++i) {
      const std::int64_t value = values.integers[static_cast<std::size_t>(i)];
      least = std::min(least, value);
      most = std::max(most, value);
    }
  };
  columns_.count = count_;
  columns_.users = users.integers.data();
  columns_.items = items.integers.data();
  columns_.times = timed ? times.integers.data() : nullptr;
  range(users, columns_.least_user, columns_.most_user);
  range(items, columns_.least_item, columns_.most_item);
  columns_.whole_seconds = true;
  if (timed) {
    range(times, columns_.first_time, columns_.last_time);
    columns_.whole_seconds = spelling == TimeSpelling::kInteger ||
                             std::all_of(times.integers.begin(), times.integers.begin() + count_,
                                         [](std::int64_t time) { return time % 1000 == 0; });
  }
  std::fill_n(signals_.begin(), marks.empty() ? 0 : count_, 0u);
  for (std::size_t m = 0; m < marks.size(); ++m) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count_); ++i) {
      signals_[i] |= std::uint32_t{marks[m].set[i]} << m;
    }
  }
  columns_.signals = signals_.data();
  columns_.numbers.clear();
  for (const Numbers& each : numbers) columns_.numbers.push_back(each.values.data());
}

}  // namespace turbogr::data
