#include "turbogr/data/prepare_parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "turbogr/core/check.h"
#include "turbogr/data/byte_source.h"
#include "turbogr/data/csv_reader.h"
#include "turbogr/data/features/table_reader.h"
#include "turbogr/data/file_kind.h"
#include "turbogr/data/log_inputs.h"
#include "turbogr/data/log_sample.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;

// Before hours of work: a table is text, too. What comes through a pipe can be read only once.
void check_table(const fs::path& path) {
  if (path == "-" || (fs::exists(path) && fs::is_other(path))) return;
  Input input = open_input(path);
  CsvReader reader(*input.bytes, input.name, {});
  check_delimited_text(reader.peek(), input.name);
}

class Parser {
 public:
  Parser(const PrepareOptions& options, const MemoryPlan& plan, const fs::path& folder,
         Progress& progress, PrepareReport& report)
      : options_(options),
        plan_(plan),
        folder_(folder),
        progress_(progress),
        report_(report),
        bad_(options.bad_rows) {}

  ParsedLog run() {
    LogInputs inputs = log_inputs(options_);
    const std::vector<fs::path>& files = inputs.logs;
    user_tables_ = std::move(inputs.user_tables);
    item_tables_ = std::move(inputs.item_tables);
    report_.remarks = std::move(inputs.remarks);
    for (const auto& tables :
         {user_tables_, item_tables_, options_.user_tables, options_.item_tables}) {
      for (const fs::path& table : tables) check_table(table);
    }
    check_features(files);
    progress_.begin("reading", total_bytes(files), "B");
    for (const fs::path& file : files) read_file(file);
    return finish();
  }

 private:
  void check_features(const std::vector<fs::path>& files);
  void read_file(const fs::path& path);
  void begin_logs(const LogLayout& layout, std::string_view first_bytes, const std::string& file);
  bool integer_ids(const LogLayout& layout, std::string_view first_bytes, int column) const;
  void check_same(const LogLayout& layout, const std::string& file) const;
  void read_row(const CsvReader& reader, const LogLayout& layout, const std::string& file);
  void leave_out(BadRow kind, const CsvReader& reader, const std::string& file,
                 std::string_view column, std::string_view text,
                 const BadRows::Remark& remark = {});
  void reject(FieldError error, const CsvReader& reader, const LogLayout& layout, int column,
              const std::string& file);
  std::string time_remark(std::string_view text) const;
  void settle_time(ParsedLog& log);
  ParsedLog finish();

  const PrepareOptions& options_;
  const MemoryPlan& plan_;
  const fs::path& folder_;
  Progress& progress_;
  PrepareReport& report_;
  BadRows bad_;

  std::optional<LogLayout> layout_;  // of the first log; later ones must offer the same
  bool integer_users_ = true;
  bool integer_items_ = true;
  std::unique_ptr<IdCollector> users_;
  std::unique_ptr<IdCollector> items_;
  std::unique_ptr<EventRows> rows_;
  std::unique_ptr<EventFeatures> event_features_;
  std::uint32_t keep_mask_ = 0;

  std::optional<TimeSpelling> spelling_;
  std::int64_t first_time_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t last_time_ = std::numeric_limits<std::int64_t>::min();
  std::int64_t without_time_ = 0;
  bool whole_seconds_ = true;
  std::vector<std::int64_t> empty_signals_;
  std::vector<fs::path> user_tables_;
  std::vector<fs::path> item_tables_;
};

// That the tables have what is asked of them, before the logs are read. KuaiRand's tables are among
// the inputs and told by their columns.
void Parser::check_features(const std::vector<fs::path>& files) {
  for (const auto owner : {FeatureOwner::kUser, FeatureOwner::kItem}) {
    const bool items = owner == FeatureOwner::kItem;
    const auto& asked = items ? options_.item_features : options_.user_features;
    if (asked.empty()) continue;
    std::vector<fs::path> paths = items ? item_tables_ : user_tables_;
    for (const fs::path& file : files) {
      if (options_.format != LogFormat::kKuaiRand || !fs::is_regular_file(file)) continue;
      Input input = open_input(file);
      CsvReader reader(*input.bytes, input.name, {});
      const LogLayout layout =
          find_layout(options_.format, options_.columns, reader.peek(), input.name);
      if (layout.is_side_table && layout.side_of_items == items) paths.push_back(file);
    }
    const std::vector<fs::path>& given = items ? options_.item_tables : options_.user_tables;
    paths.insert(paths.end(), given.begin(), given.end());
    std::vector<TableFile> tables;
    tables.reserve(paths.size());
    for (const fs::path& path : paths) tables.push_back({path, path.string()});
    check_feature_tables(tables, owner, feature_requests(asked, owner, tables), options_.bad_rows,
                         report_.remarks);
  }
}

bool Parser::integer_ids(const LogLayout& layout, std::string_view first_bytes, int column) const {
  if (options_.ids != "auto") return options_.ids == "integer";
  return options_.format != LogFormat::kCsv || mostly_integers(layout, first_bytes, column);
}

void Parser::begin_logs(const LogLayout& layout, std::string_view first_bytes,
                        const std::string& file) {
  layout_ = layout;
  TGR_CHECK(options_.ids == "auto" || options_.ids == "integer" || options_.ids == "string",
            "--ids is auto, integer or string, not '", options_.ids, "'");
  integer_users_ = integer_ids(layout, first_bytes, layout.user);
  integer_items_ = integer_ids(layout, first_bytes, layout.item);
  spelling_ = usual_time_spelling(layout, first_bytes);
  const auto kind = [](bool integer) { return integer ? IdKind::kInt64 : IdKind::kString; };
  users_ = std::make_unique<IdCollector>(kind(integer_users_), folder_ / "users.tmp", plan_.ids);
  items_ = std::make_unique<IdCollector>(kind(integer_items_), folder_ / "items.tmp", plan_.ids);
  const RowLayout rows{.signals = !layout.signal_names.empty(),
                       .num_numbers = layout.numbers.size() + layout.features.size()};
  std::vector<std::vector<std::string>> samples;
  for (const int column : layout.features) {
    samples.push_back(sample_fields(layout, first_bytes, column));
  }
  event_features_ = std::make_unique<EventFeatures>(
      parse_feature_requests(options_.columns.features, FeatureOwner::kEvent), samples,
      plan_.lookup);
  rows_ =
      std::make_unique<EventRows>(rows, plan_.row_capacity(rows.stride()), folder_ / "rows.tmp");
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

void Parser::check_same(const LogLayout& layout, const std::string& file) const {
  TGR_CHECK(layout.signal_names == layout_->signal_names &&
                layout.number_names == layout_->number_names &&
                (layout.time >= 0) == (layout_->time >= 0),
            "'", file, "' does not have the columns of the first file (",
            printable(fmt::format("{}", fmt::join(layout_->names, ", ")), 600),
            "); prepare it apart or name the columns to keep");
}

void Parser::read_file(const fs::path& path) {
  const std::int64_t bytes_before = report_.input_bytes;
  Input input = open_input(path);
  CsvReader reader(*input.bytes, input.name, {});
  const LogLayout layout =
      find_layout(options_.format, options_.columns, reader.peek(), input.name);
  if (layout.is_side_table) {
    TGR_CHECK(path != "-", "standard input holds a feature table; give it as a file");
    (layout.side_of_items ? item_tables_ : user_tables_).push_back(path);
    return;
  }
  if (layout_) {
    check_same(layout, input.name);
  } else {
    begin_logs(layout, reader.peek(), input.name);
  }
  reader.set_dialect(layout.dialect);
  if (layout.header) reader.next();
  std::int64_t row = 0;
  while (reader.next()) {
    ++report_.rows;
    read_row(reader, layout, input.name);
    if ((++row & 0xfff) == 0) progress_.update(bytes_before + *input.consumed);
  }
  report_.input_bytes = bytes_before + *input.consumed;
}

// A date among numbers, or a number among dates, is a time and yet the wrong thing here.
std::string Parser::time_remark(std::string_view text) const {
  std::int64_t time = 0;
  const TimeSpelling spelling = guess_time_spelling(text);
  if (!spelling_ || parse_time(text, spelling, time) != FieldError::kNone) return "";
  return *spelling_ == TimeSpelling::kIso ? "the other times are dates"
                                          : "the other times are numbers";
}

void Parser::leave_out(BadRow kind, const CsvReader& reader, const std::string& file,
                       std::string_view column, std::string_view text,
                       const BadRows::Remark& remark) {
  report_.rows += reader.num_lines() - 1;  // the record itself is counted already
  bad_.add(kind,
           {.file = file,
            .line = reader.line(),
            .num_lines = reader.num_lines(),
            .column = column,
            .text = text},
           remark);
}

void Parser::reject(FieldError error, const CsvReader& reader, const LogLayout& layout, int column,
                    const std::string& file) {
  const auto at = static_cast<std::size_t>(column);
  const std::string_view text = reader.fields()[at];
  const std::string_view name = layout.names[at];
  if (error == FieldError::kEmpty) {
    leave_out(BadRow::kEmptyId, reader, file, name, reader.text());
  } else if (error == FieldError::kTooLong) {
    leave_out(BadRow::kLongId, reader, file, name, text, [&] {
      return fmt::format("it has {} bytes; {} are the most", text.size(), kLongestId);
    });
  } else if (error == FieldError::kTooLarge) {
    leave_out(BadRow::kTooLarge, reader, file, name, text,
              [&] { return column == layout.time ? "times are seconds or milliseconds" : ""; });
  } else if (error == FieldError::kBadTime || column == layout.time) {
    leave_out(BadRow::kBadTime, reader, file, name, text, [&] { return time_remark(text); });
  } else {
    const bool id = column == layout.user || column == layout.item;
    leave_out(BadRow::kNotANumber, reader, file, name, text,
              [&] { return id ? "ids before it were numbers; --ids string takes any text" : ""; });
  }
}

void Parser::read_row(const CsvReader& reader, const LogLayout& layout, const std::string& file) {
  const std::vector<std::string_view>& fields = reader.fields();
  if (reader.unclosed_quote()) {
    return leave_out(BadRow::kOpenQuote, reader, file, "", reader.text());
  }
  if (fields.size() != layout.num_columns) {
    return leave_out(BadRow::kColumns, reader, file, "", reader.text(), [&] {
      const std::string found = fields.size() > kMostFields
                                    ? fmt::format("more than {}", kMostFields)
                                    : std::to_string(fields.size());
      return fmt::format("{} columns, not {}{}", found, layout.num_columns,
                         reader.ends_without_newline() ? "; the file seems cut short" : "");
    });
  }
  const auto field = [&](int column) { return fields[static_cast<std::size_t>(column)]; };

  std::int64_t time = 0;
  bool has_time = false;
  if (layout.time >= 0 && !field(layout.time).empty()) {
    const std::string_view text = field(layout.time);
    const TimeSpelling spelling = spelling_ ? *spelling_ : guess_time_spelling(text);
    const FieldError error = parse_time(text, spelling, time);
    if (error != FieldError::kNone) return reject(error, reader, layout, layout.time, file);
    spelling_ = spelling;
    has_time = true;
  }
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < layout.signals.size(); ++i) {
    bool set = false;
    const std::string_view text = field(layout.signals[i]);
    const FieldError error = parse_signal(text, set);
    if (error != FieldError::kNone) return reject(error, reader, layout, layout.signals[i], file);
    bits |= static_cast<std::uint32_t>(set) << i;
    empty_signals_[i] += text.empty() ? 1 : 0;
  }
  for (std::size_t i = 0; i < layout.labels.size(); ++i) {
    const auto& [column, label] = layout.labels[i];
    float number = 0;
    const FieldError error = parse_float(field(column), number);
    if (error != FieldError::kNone) return reject(error, reader, layout, column, file);
    const std::size_t bit = layout.signals.size() + i;
    bits |= static_cast<std::uint32_t>(label.holds(number)) << bit;
    empty_signals_[bit] += field(column).empty() ? 1 : 0;
  }
  float numbers[kMostNumbers];
  for (std::size_t i = 0; i < layout.numbers.size(); ++i) {
    const FieldError error = parse_float(field(layout.numbers[i]), numbers[i]);
    if (error != FieldError::kNone) return reject(error, reader, layout, layout.numbers[i], file);
  }
  // Ids are looked at before they are gathered: a bad row must leave no trace.
  std::int64_t user = 0;
  std::int64_t item = 0;
  const auto check_id = [&](bool integer, int column, std::int64_t& id) {
    const std::string_view text = field(column);
    if (integer) return parse_integer(text, id);
    if (text.size() > kLongestId) return FieldError::kTooLong;
    return text.empty() ? FieldError::kEmpty : FieldError::kNone;
  };
  FieldError error = check_id(integer_users_, layout.user, user);
  if (error != FieldError::kNone) return reject(error, reader, layout, layout.user, file);
  error = check_id(integer_items_, layout.item, item);
  if (error != FieldError::kNone) return reject(error, reader, layout, layout.item, file);
  if ((bits & keep_mask_) != keep_mask_) {
    ++report_.without_signal;
    return;
  }
  if (integer_users_) {
    users_->add_integer(user);
  } else {
    user = users_->add_string(field(layout.user));
  }
  if (integer_items_) {
    items_->add_integer(item);
  } else {
    item = items_->add_string(field(layout.item));
  }
  if (has_time) {
    first_time_ = std::min(first_time_, time);
    last_time_ = std::max(last_time_, time);
    if (*spelling_ != TimeSpelling::kInteger) whole_seconds_ = whole_seconds_ && time % 1000 == 0;
  } else {
    ++without_time_;
  }
  std::byte* row = rows_->add();
  store_field(row, RowLayout::kUser, user);
  store_field(row, RowLayout::kItem, item);
  store_field(row, RowLayout::kTime, time);
  if (rows_->layout().signals) store_field(row, RowLayout::kSignals, bits);
  if (!layout.numbers.empty()) {
    std::memcpy(row + rows_->layout().number(0), numbers, 4 * layout.numbers.size());
  }
  for (std::size_t i = 0; i < layout.features.size(); ++i) {
    store_field(row, rows_->layout().number(layout.numbers.size() + i),
                event_features_->keep(i, field(layout.features[i]), file, reader.line()));
  }
}

void Parser::settle_time(ParsedLog& log) {
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
  if (*spelling_ != TimeSpelling::kInteger) {
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

ParsedLog Parser::finish() {
  TGR_CHECK(layout_.has_value(), "the inputs hold feature tables only; give a log as well");
  report_.bad_rows = bad_.count();
  for (const std::string& line : bad_.summary()) report_.remarks.push_back(line);
  TGR_CHECK(rows_->size() > 0, "no usable row in the input: ", report_.rows, " rows read, ",
            report_.bad_rows, " bad, ", report_.without_signal, " without the signal asked for");
  for (std::size_t i = 0; i < empty_signals_.size(); ++i) {
    if (empty_signals_[i] == 0) continue;
    report_.remarks.push_back(fmt::format("{} is empty in {} rows; taken as not set",
                                          layout_->signal_names[i], empty_signals_[i]));
  }
  ParsedLog log;
  settle_time(log);
  rows_->close();
  log.users = users_->finish();
  users_.reset();
  log.items = items_->finish();
  items_.reset();
  log.rows = std::move(rows_);
  for (const std::string& remark : event_features_->remarks()) report_.remarks.push_back(remark);
  log.event_features = std::move(event_features_);
  log.signal_names = layout_->signal_names;
  log.number_names = layout_->number_names;
  log.user_tables = std::move(user_tables_);
  log.item_tables = std::move(item_tables_);
  return log;
}

}  // namespace

MemoryPlan::MemoryPlan(std::size_t memory_bytes) {
  // The program itself, its libraries and fixed buffers; little budgets are for tests.
  constexpr std::size_t kProgramBytes = std::size_t{24} << 20;
  const std::size_t room =
      memory_bytes > 2 * kProgramBytes ? memory_bytes - kProgramBytes : memory_bytes / 2;
  rows = room / 100 * 60;
  ids = room / 8;
  lookup = room / 10;
  working = room / 100 * 60;
}

ParsedLog parse_logs(const PrepareOptions& options, const MemoryPlan& plan, const fs::path& folder,
                     Progress& progress, PrepareReport& report) {
  return Parser(options, plan, folder, progress, report).run();
}

}  // namespace turbogr::data
