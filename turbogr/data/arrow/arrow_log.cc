#include "turbogr/data/arrow/arrow_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/data/arrow/arrow_column.h"
#include "turbogr/data/arrow/arrow_log_columns.h"
#include "turbogr/data/arrow/arrow_run.h"
#include "turbogr/data/interrupt.h"

namespace turbogr::data {
namespace {

constexpr std::size_t kRunsAtOnce = 16;
constexpr int kSampleRows = 1000;

class ArrowLogReader {
 public:
  ArrowLogReader(ThreadPool& pool, ArrowStream& stream, const PrepareOptions& options,
                 EventCollector& events, BadRows& bad, PrepareReport& report)
      : pool_(pool),
        stream_(stream),
        options_(options),
        events_(events),
        bad_(bad),
        report_(report),
        columns_(stream, options.columns),
        layout_(columns_.layout()),
        runs_(kRunsAtOnce, ArrowRun(layout_)) {}

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
        for (std::int64_t row = 0; row < batch.length; row += ArrowRun::kEvents) {
          read_run(std::min(ArrowRun::kEvents, batch.length - row), row, 0);
        }
      }
      take_runs();
      rows_before_ += batch.length;
    }
    if (!begun) begin(0);
  }

 private:
  void begin(std::int64_t rows);
  bool integer_ids(int column);
  TimeSpelling spelling_of(int column, std::int64_t rows);
  std::vector<std::string> sample(int column, std::int64_t rows);
  void read_user(std::int64_t row);
  void read_run(std::int64_t count, std::int64_t row, std::int64_t place);
  void take_runs();
  void add_one_by_one(const ArrowRun& run);
  bool take_id(bool integer, int column, const ArrowRun& run, const ArrowRun::Values& values,
               std::int64_t i, std::int64_t& id, std::string_view& text, std::string& scratch);
  void reject(FieldError error, int column, const ArrowRun& run, std::int64_t i);

  // Where event i of a run lies in a column.
  std::pair<const ArrowColumn*, std::int64_t> cell(int column, const ArrowRun& run,
                                                   std::int64_t i) {
    const ArrowColumn& found = columns_[column];
    if (!columns_.sequential()) return {&found, run.row() + i};
    if (!found.is_list()) return {&found, run.row()};
    return {&found.values(), found.span(run.row()).begin + run.place() + i};
  }
  // Which of a label's columns has no number in event i, where one is wanted.
  int no_number_of(const LabelColumns& label, const ArrowRun& run, std::int64_t i) {
    for (std::size_t t = 0; t < label.columns.size(); ++t) {
      const auto [found, row] = cell(label.columns[t], run, i);
      float number = 0;
      FieldError error = FieldError::kNone;
      if (!label.label.tests[t].of_text && !found->numbers(row, 1, &number, &error)) {
        return label.columns[t];
      }
    }
    return label.columns.front();
  }
  std::int64_t line_of(const ArrowRun& run, std::int64_t i) {
    return rows_before_ + (columns_.sequential() ? run.row() : run.row() + i) + 1;
  }

  ThreadPool& pool_;
  ArrowStream& stream_;
  const PrepareOptions& options_;
  EventCollector& events_;
  BadRows& bad_;
  PrepareReport& report_;
  ArrowLogColumns columns_;
  const LogLayout& layout_;

  std::int64_t rows_before_ = 0;  // of earlier batches
  std::vector<ArrowRun> runs_;    // the first num_runs_ wait to be taken
  std::size_t num_runs_ = 0;
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
  const ArrowColumn& values = columns_[column];
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
  const ArrowColumn::Span items = columns_[layout_.item].span(row);
  const std::int64_t length = items.end - items.begin;
  const auto check_length = [&](int column) {
    if (column < 0 || !columns_[column].is_list()) return true;
    const ArrowColumn::Span own = columns_[column].span(row);
    if (own.end - own.begin == length) return true;
    take_runs();  // in order
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
  for (const LabelColumns& label : layout_.labels) {
    for (const int column : label.columns) same = same && check_length(column);
  }
  if (!same) return;
  for (std::int64_t place = 0; place < length; place += ArrowRun::kEvents) {
    read_run(std::min(ArrowRun::kEvents, length - place), row, place);
  }
}

void ArrowLogReader::reject(FieldError error, int column, const ArrowRun& run, std::int64_t i) {
  const auto [found, row] = cell(column, run, i);
  const std::string_view text = found->text(row, scratch_);
  const bool id = column == layout_.user || column == layout_.item;
  const BadRow kind = error == FieldError::kEmpty      ? BadRow::kEmptyId
                      : error == FieldError::kTooLong  ? BadRow::kLongId
                      : error == FieldError::kTooLarge ? BadRow::kTooLarge
                      : column == layout_.time         ? BadRow::kBadTime
                                                       : BadRow::kNotANumber;
  bad_.add(kind,
           {.file = stream_.name(),
            .line = line_of(run, i),
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
bool ArrowLogReader::take_id(bool integer, int column, const ArrowRun& run,
                             const ArrowRun::Values& values, std::int64_t i, std::int64_t& id,
                             std::string_view& text, std::string& scratch) {
  if (integer) {
    if (const FieldError error = values.error(i); error != FieldError::kNone) {
      reject(error, column, run, i);
      return false;
    }
    id = values.integers[static_cast<std::size_t>(i)];
    return true;
  }
  const auto [found, row] = cell(column, run, i);
  text = found->text(row, scratch);
  if (text.empty() || text.size() > kLongestId) {
    reject(text.empty() ? FieldError::kEmpty : FieldError::kTooLong, column, run, i);
    return false;
  }
  return true;
}

// Events of rows [row, row + count), or those from `place` on of the user in `row`.
void ArrowLogReader::read_run(std::int64_t count, std::int64_t row, std::int64_t place) {
  if (count <= 0) return;
  if (num_runs_ == runs_.size()) take_runs();
  runs_[num_runs_++].set(count, row, place);
}

// Converts all that wait, several at a time; then their events are taken in order, those of runs
// with nothing odd in them several at a time again.
void ArrowLogReader::take_runs() {
  check_interrupt();
  const auto num_runs = static_cast<std::int64_t>(std::exchange(num_runs_, 0));
  const auto run_of = [&](std::int64_t run) -> ArrowRun& {
    return runs_[static_cast<std::size_t>(run)];
  };
  parallel_for(pool_, num_runs, [&](std::int64_t run, int) {
    run_of(run).convert(columns_, events_.integer_users(), events_.integer_items(),
                        events_.spelling());
  });
  std::array<std::byte*, kRunsAtOnce> rows;
  std::int64_t filled = 0;
  const auto fill_up_to = [&](std::int64_t end) {
    parallel_for(pool_, end - filled, [&](std::int64_t i, int) {
      const std::int64_t run = filled + i;
      events_.fill(run_of(run).columns(), rows[static_cast<std::size_t>(run)]);
    });
    filled = end;
  };
  for (std::int64_t i = 0; i < num_runs; ++i) {
    const ArrowRun& run = run_of(i);
    report_.rows += run.count();
    std::byte* to = run.fine() ? events_.reserve(run.columns()) : nullptr;
    rows[static_cast<std::size_t>(i)] = to;
    if (to == nullptr) {
      fill_up_to(i);  // adding may write rows out: none may be without its event
      add_one_by_one(run);
      ++filled;
      continue;
    }
    for (std::size_t m = 0; m < run.marks.size(); ++m) {
      events_.count_empty_signals(m, run.marks[m].num_missing);
    }
  }
  fill_up_to(num_runs);
}

void ArrowLogReader::add_one_by_one(const ArrowRun& run) {
  float numbers[kMostNumbers];
  for (std::int64_t e = 0; e < run.count(); ++e) {
    const auto at = static_cast<std::size_t>(e);
    LogEvent event;
    event.numbers = numbers;
    if (layout_.time >= 0) {
      const FieldError error = run.times.error(e);
      event.has_time = error == FieldError::kNone;
      if (event.has_time) {
        event.time = run.times.integers[at];
      } else if (error != FieldError::kEmpty) {
        reject(error, layout_.time, run, e);
        continue;
      }
    }
    bool fine = true;
    for (std::size_t i = 0; i < run.marks.size() && fine; ++i) {
      const FieldError error = run.marks[i].error(e);
      if (error != FieldError::kNone) {
        const bool label = i >= layout_.signals.size();
        reject(error,
               label ? no_number_of(layout_.labels[i - layout_.signals.size()], run, e)
                     : layout_.signals[i],
               run, e);
        fine = false;
      }
      event.signals |= std::uint32_t{run.marks[i].set[at]} << i;
    }
    for (std::size_t i = 0; i < run.numbers.size() && fine; ++i) {
      numbers[i] = run.numbers[i].values[at];
      const FieldError error = run.numbers[i].error(e);
      if (error == FieldError::kNone) continue;
      reject(error, layout_.numbers[i], run, e);
      fine = false;
    }
    if (!fine || !take_id(events_.integer_users(), layout_.user, run, run.users, e, event.user,
                          event.user_text, user_scratch_)) {
      continue;
    }
    if (!take_id(events_.integer_items(), layout_.item, run, run.items, e, event.item,
                 event.item_text, item_scratch_)) {
      continue;
    }
    for (std::size_t i = 0; i < run.marks.size(); ++i) {
      events_.count_empty_signals(i, run.marks[i].missing[at]);
    }
    std::byte* to = events_.add(event);
    if (to == nullptr) continue;
    for (std::size_t i = 0; i < layout_.features.size(); ++i) {
      const auto [found, place] = cell(layout_.features[i], run, e);
      events_.add_feature(to, i, found->text(place, scratch_), stream_.name(), line_of(run, e));
    }
  }
}

}  // namespace

void read_arrow_log(ThreadPool& pool, ArrowStream& stream, const PrepareOptions& options,
                    EventCollector& events, BadRows& bad, PrepareReport& report) {
  ArrowLogReader(pool, stream, options, events, bad, report).run();
}

}  // namespace turbogr::data
