#include "turbogr/data/prepare_parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "turbogr/core/check.h"
#include "turbogr/data/arrow/arrow_log.h"
#include "turbogr/data/arrow/parquet_files.h"
#include "turbogr/data/byte_source.h"
#include "turbogr/data/csv_reader.h"
#include "turbogr/data/event_collector.h"
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
  Parser(ThreadPool& pool, const PrepareOptions& options, const TableFiles& tables,
         const MemoryPlan& plan, const fs::path& folder, Progress& progress, PrepareReport& report)
      : pool_(pool),
        options_(options),
        tables_(tables),
        progress_(progress),
        report_(report),
        bad_(options.bad_rows),
        events_(options, plan, folder, report) {}

  ParsedLog run() {
    const bool parquet = options_.format == LogFormat::kParquet;
    LogInputs inputs = parquet ? LogInputs{} : log_inputs(options_);
    const std::vector<fs::path>& files = inputs.logs;
    user_tables_ = std::move(inputs.user_tables);
    item_tables_ = std::move(inputs.item_tables);
    report_.remarks.insert(report_.remarks.end(), inputs.remarks.begin(), inputs.remarks.end());
    for (const auto& found : {user_tables_, item_tables_}) {
      for (const fs::path& table : found) check_table(table);
    }
    for (const auto& given : {tables_.users, tables_.items}) {
      for (const TableFile& table : given) check_table(table.path);
    }
    check_features(files);
    progress_.begin("reading", total_bytes(files), "B");
    for (const fs::path& file : files) read_file(file);
    if (parquet) {
      const auto stream = open_parquet_log(files_of_shard(options_.inputs, options_),
                                           options_.columns, options_.memory_bytes);
      read_arrow_log(pool_, *stream, options_, events_, bad_, report_);
    }
    for (const ArrowInput& input : options_.streams) {
      ArrowStream stream(input.name, input.stream);
      read_arrow_log(pool_, stream, options_, events_, bad_, report_);
    }
    return finish();
  }

 private:
  void check_features(const std::vector<fs::path>& files);
  void read_file(const fs::path& path);
  void begin_logs(const LogLayout& layout, std::string_view first_bytes, const std::string& file);
  bool integer_ids(const LogLayout& layout, std::string_view first_bytes, int column) const;
  void read_row(const CsvReader& reader, const LogLayout& layout, const std::string& file);
  void leave_out(BadRow kind, const CsvReader& reader, const std::string& file,
                 std::string_view column, std::string_view text,
                 const BadRows::Remark& remark = {});
  void reject(FieldError error, const CsvReader& reader, const LogLayout& layout, int column,
              const std::string& file);
  std::string time_remark(std::string_view text) const;
  std::vector<TableFile> tables_about(FeatureOwner owner) const;
  void reject_item(FieldError error, const CsvReader& reader, const TableReader& table);
  void add_items_of_tables();
  ParsedLog finish();

  ThreadPool& pool_;
  const PrepareOptions& options_;
  const TableFiles& tables_;
  Progress& progress_;
  PrepareReport& report_;
  BadRows bad_;
  EventCollector events_;
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
    std::vector<TableFile> tables;
    for (const fs::path& file : files) {
      if (options_.format != LogFormat::kKuaiRand || !fs::is_regular_file(file)) continue;
      Input input = open_input(file);
      CsvReader reader(*input.bytes, input.name, {});
      const LogLayout layout =
          find_layout(options_.format, options_.columns, reader.peek(), input.name);
      if (layout.is_side_table && layout.side_of_items == items) {
        tables.push_back({.path = file, .name = file.string()});
      }
    }
    const std::vector<TableFile> others = tables_about(owner);
    tables.insert(tables.end(), others.begin(), others.end());
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
  TGR_CHECK(options_.ids == "auto" || options_.ids == "integer" || options_.ids == "string",
            "--ids is auto, integer or string, not '", options_.ids, "'");
  LogTypes types = {.integer_users = integer_ids(layout, first_bytes, layout.user),
                    .integer_items = integer_ids(layout, first_bytes, layout.item),
                    .spelling = usual_time_spelling(layout, first_bytes),
                    .feature_samples = {}};
  for (const int column : layout.features) {
    types.feature_samples.push_back(sample_fields(layout, first_bytes, column));
  }
  events_.begin(layout, types, file);
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
  if (events_.begun()) {
    events_.check_same(layout, input.name);
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
  if (parse_time(text, spelling, time) != FieldError::kNone) {
    return "times are whole numbers, or dates such as 2022-04-30 12:00:00";
  }
  if (!events_.spelling()) return "";
  return *events_.spelling() == TimeSpelling::kIso ? "the other times are dates"
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

  LogEvent event;
  if (layout.time >= 0 && !field(layout.time).empty()) {
    const std::string_view text = field(layout.time);
    const TimeSpelling spelling = events_.spelling().value_or(guess_time_spelling(text));
    const FieldError error = parse_time(text, spelling, event.time);
    if (error != FieldError::kNone) return reject(error, reader, layout, layout.time, file);
    events_.set_spelling(spelling);
    event.has_time = true;
  }
  for (std::size_t i = 0; i < layout.signals.size(); ++i) {
    bool set = false;
    const std::string_view text = field(layout.signals[i]);
    const FieldError error = parse_signal(text, set);
    if (error != FieldError::kNone) return reject(error, reader, layout, layout.signals[i], file);
    event.signals |= static_cast<std::uint32_t>(set) << i;
    if (text.empty()) events_.count_empty_signals(i, 1);
  }
  for (std::size_t i = 0; i < layout.labels.size(); ++i) {
    const auto& [label, columns] = layout.labels[i];
    LabelVerdict verdict = LabelVerdict::kSet;
    for (std::size_t t = 0; t < columns.size(); ++t) {
      const std::string_view text = field(columns[t]);
      if (label.tests[t].of_text) {
        verdict = std::max(verdict, label.tests[t].of(text));
        continue;
      }
      float number = 0;
      const FieldError error = parse_float(text, number);
      if (error != FieldError::kNone) return reject(error, reader, layout, columns[t], file);
      verdict = std::max(verdict, label.tests[t].of(number));
    }
    const std::size_t bit = layout.signals.size() + i;
    if (verdict == LabelVerdict::kSet) event.signals |= std::uint32_t{1} << bit;
    if (verdict == LabelVerdict::kMissing) events_.count_empty_signals(bit, 1);
  }
  float numbers[kMostNumbers];
  for (std::size_t i = 0; i < layout.numbers.size(); ++i) {
    const FieldError error = parse_float(field(layout.numbers[i]), numbers[i]);
    if (error != FieldError::kNone) return reject(error, reader, layout, layout.numbers[i], file);
  }
  // Ids are looked at before they are gathered: a bad row must leave no trace.
  const auto check_id = [&](bool integer, int column, std::int64_t& id) {
    const std::string_view text = field(column);
    if (integer) return parse_integer(text, id);
    if (text.size() > kLongestId) return FieldError::kTooLong;
    return text.empty() ? FieldError::kEmpty : FieldError::kNone;
  };
  FieldError error = check_id(events_.integer_users(), layout.user, event.user);
  if (error != FieldError::kNone) return reject(error, reader, layout, layout.user, file);
  error = check_id(events_.integer_items(), layout.item, event.item);
  if (error != FieldError::kNone) return reject(error, reader, layout, layout.item, file);
  event.user_text = field(layout.user);
  event.item_text = field(layout.item);
  event.numbers = numbers;
  std::byte* row = events_.add(event);
  if (row == nullptr) return;
  for (std::size_t i = 0; i < layout.features.size(); ++i) {
    events_.add_feature(row, i, field(layout.features[i]), file, reader.line());
  }
}

// Those found among the logs, then those given.
std::vector<TableFile> Parser::tables_about(FeatureOwner owner) const {
  std::vector<TableFile> tables;
  for (const fs::path& path : owner == FeatureOwner::kItem ? item_tables_ : user_tables_) {
    tables.push_back({.path = path, .name = path.string()});
  }
  const std::vector<TableFile>& given = tables_.of(owner);
  tables.insert(tables.end(), given.begin(), given.end());
  return tables;
}

// The log's ids say what an id is: such an item has no place among them.
void Parser::reject_item(FieldError error, const CsvReader& reader, const TableReader& table) {
  const BadRow kind = error == FieldError::kTooLong    ? BadRow::kLongId
                      : error == FieldError::kTooLarge ? BadRow::kTooLarge
                                                       : BadRow::kNotANumber;
  bad_.add(kind,
           {.file = table.name(),
            .line = reader.line(),
            .num_lines = reader.num_lines(),
            .column = table.id_column(),
            .text = table.id()},
           [&] {
             return kind == BadRow::kNotANumber
                        ? "--keep-items-without-events keeps items as the log has them, whose ids "
                          "are numbers; --ids string takes any text"
                        : "";
           });
}

void Parser::add_items_of_tables() {
  if (!options_.keep_items_without_events) return;
  const std::vector<TableFile> tables = tables_about(FeatureOwner::kItem);
  const std::vector<FeatureRequest> requests =
      feature_requests(options_.item_features, FeatureOwner::kItem, tables);
  for (const TableFile& file : tables) {
    TGR_CHECK(file.path != "-" && !fs::is_other(file.path), "--keep-items-without-events reads '",
              file.name, "' twice, and it can be read only once; write it to a file");
    TableReader table(file, FeatureOwner::kItem, requests);
    const bool has_features = std::any_of(table.columns().begin(), table.columns().end(),
                                          [](int column) { return column >= 0; });
    if (!has_features) continue;  // of its items nothing would be known
    table.for_each_row(
        [&](const CsvReader& row) {
          const FieldError error = events_.add_item(table.id());
          if (error != FieldError::kNone) reject_item(error, row, table);
        },
        [](const CsvReader&, BadRow) {});  // said already
  }
}

ParsedLog Parser::finish() {
  TGR_CHECK(events_.begun(), "the inputs hold feature tables only; give a log as well");
  add_items_of_tables();
  report_.bad_rows = bad_.count();
  for (const std::string& line : bad_.summary()) report_.remarks.push_back(line);
  ParsedLog log = events_.finish();
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

ParsedLog parse_logs(ThreadPool& pool, const PrepareOptions& options, const TableFiles& tables,
                     const MemoryPlan& plan, const fs::path& folder, Progress& progress,
                     PrepareReport& report) {
  return Parser(pool, options, tables, plan, folder, progress, report).run();
}

}  // namespace turbogr::data
