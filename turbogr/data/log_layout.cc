#include "turbogr/data/log_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>

#include "turbogr/core/check.h"
#include "turbogr/data/features/feature.h"
#include "turbogr/data/field.h"
#include "turbogr/data/file_kind.h"

namespace turbogr::data {
namespace {

using Names = std::vector<std::string_view>;

// In order of preference.
const Names kUserNames = {"user_id",   "userid",     "user",        "uid",
                          "visitorid", "visitor_id", "customer_id", "reviewerid"};
const Names kItemNames = {"item_id",    "itemid",   "item",       "iid",         "video_id",
                          "movieid",    "movie_id", "product_id", "parent_asin", "asin",
                          "article_id", "track_id", "song_id",    "book_id"};
const Names kTimeNames = {"time_ms",    "timestamp",      "time",     "ts",         "unixtime",
                          "event_time", "unixreviewtime", "datetime", "created_at", "date"};
const Names kSignalNames = {"long_view", "click", "like"};  // and all that begin with is_
const Names kNumberNames = {"rating", "play_time_ms", "duration_ms", "play_time"};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string spelled_out(const std::string& delimiter) {
  if (delimiter == "tab" || delimiter == "\\t") return "\t";
  if (delimiter == "comma") return ",";
  if (delimiter == "space") return " ";
  return delimiter;
}

std::string shown(std::string_view text) { return printable(text, 80); }

std::string listed(const std::vector<std::string>& names) {
  return printable(fmt::format("{}", fmt::join(names, ", ")), 600);
}

}  // namespace

std::string guess_delimiter(std::string_view line, const std::string& file) {
  std::string best;
  std::size_t most = 0;
  for (const char* candidate : {"::", ",", "\t", ";", "|"}) {
    std::size_t count = 0;
    const std::size_t step = std::strlen(candidate);
    for (std::size_t at = line.find(candidate); at != std::string_view::npos;
         at = line.find(candidate, at + step)) {
      ++count;
    }
    if (count > most) {
      most = count;
      best = candidate;
    }
  }
  TGR_CHECK(most > 0, "'", file, "': no delimiter in its first line '", shown(line),
            "'; give --delimiter");
  return best;
}

namespace {

int find_name(const std::vector<std::string>& header, const Names& wanted) {
  for (const std::string_view name : wanted) {
    for (std::size_t i = 0; i < header.size(); ++i) {
      if (header[i].size() == name.size() && lower(header[i]) == name) return static_cast<int>(i);
    }
  }
  return -1;
}

bool all_digits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

// A column the user named or numbered.
int find_asked(const LogLayout& layout, const std::string& asked, const std::string& file) {
  for (std::size_t i = 0; layout.header && i < layout.names.size(); ++i) {
    if (layout.names[i] == asked) return static_cast<int>(i);
  }
  if (all_digits(asked) && asked.size() < 6) {
    const int number = std::stoi(asked);
    TGR_CHECK(number >= 1 && number <= static_cast<int>(layout.num_columns), "'", file,
              "': there is no column ", number, "; the first line has ", layout.num_columns);
    return number - 1;
  }
  if (!layout.header) {
    detail::throw_error("'", file, "' has no header, so no column '", asked,
                        "'; number the columns from 1, or give --header yes");
  }
  detail::throw_error("'", file, "': there is no column '", asked,
                      "'; it has: ", listed(layout.names));
}

bool header_guess(LogFormat format, const ColumnMap& map, const std::vector<std::string>& first) {
  Names known;
  for (const Names* names : {&kUserNames, &kItemNames, &kTimeNames}) {
    known.insert(known.end(), names->begin(), names->end());
  }
  if (find_name(first, known) >= 0 || format == LogFormat::kKuaiRand) return true;
  for (const std::string* asked : {&map.user, &map.item, &map.time}) {
    if (!all_digits(*asked) && std::find(first.begin(), first.end(), *asked) != first.end()) {
      return true;
    }
  }
  return false;
}

void check_found(const LogLayout& layout, const char* what, int column, const std::string& file,
                 const ColumnMap& map) {
  if (column >= 0) return;
  const std::string columns = listed(layout.names);
  if (layout.num_columns == 1) {
    detail::throw_error("'", file, "': split at '", layout.dialect.delimiter,
                        "' the first line is one column, '", shown(columns),
                        "'; is --delimiter wrong?");
  }
  if (!layout.header && map.header != "no") {
    detail::throw_error("'", file, "': no ", what, " column; its first line '", shown(columns),
                        "' is no header with a usual name; give --", what,
                        "-column with a name or a number from 1");
  }
  detail::throw_error("'", file, "': no ", what, " column; give --", what,
                      "-column; it has: ", columns);
}

// A name that two columns have says nothing about which one is meant.
void check_unique(const LogLayout& layout, const char* what, int column, const std::string& asked,
                  const std::string& file) {
  if (column < 0 || !layout.header || all_digits(asked)) return;
  const std::string& name = layout.names[static_cast<std::size_t>(column)];
  TGR_CHECK(std::count(layout.names.begin(), layout.names.end(), name) == 1, "'", file,
            "': two columns are named '", shown(name), "'; give --", what,
            "-column with the number, from 1, of the one wanted");
}

// KuaiRand's own names, and no other data set's: a MovieLens file read as KuaiRand would lose its
// ratings without a word.
void check_kuairand(const LogLayout& layout, const ColumnMap& map, const std::string& file) {
  std::vector<std::string> missing;
  const auto want = [&](const char* name, const std::string& asked, int column) {
    const bool there = column >= 0 && layout.names[static_cast<std::size_t>(column)] == name;
    if (asked.empty() && !there) missing.emplace_back(name);
  };
  if (!layout.is_side_table || !layout.side_of_items) want("user_id", map.user, layout.user);
  if (!layout.is_side_table || layout.side_of_items) want("video_id", map.item, layout.item);
  if (!layout.is_side_table) want("time_ms", map.time, layout.time);
  TGR_CHECK(missing.empty(), "'", file, "' is not KuaiRand's: it has no column ",
            fmt::format("{}", fmt::join(missing, ", ")), "; it has: ", listed(layout.names),
            ". Read it with --format csv or movielens, or name its columns");
}

// One kind of columns to keep.
struct Kept {
  const char* what;  // as in --signal-columns
  std::size_t most;
  const Names& usual;
  std::string_view usual_start;  // names that begin so are usual as well; empty: none
};
const Kept kKeptSignals = {"signal", kMostSignals, kSignalNames, "is_"};
const Kept kKeptNumbers = {"number", kMostNumbers, kNumberNames, ""};

void pick_list(const LogLayout& layout, const std::vector<std::string>& asked, const Kept& kept,
               const std::string& file, std::vector<int>& columns,
               std::vector<std::string>& names) {
  if (asked.size() == 1 && asked[0] == "none") return;
  const auto taken = [&](int i) {
    return i == layout.user || i == layout.item || i == layout.time;
  };
  // Before any look at them one by one: a header may have tens of thousands.
  const auto check_count = [&](std::size_t count) {
    TGR_CHECK(count <= kept.most, "'", file, "': ", count, " ", kept.what,
              " columns; a store keeps ", kept.most, " at most: name those wanted with --",
              kept.what, "-columns");
  };
  check_count(asked.size());
  for (const std::string& name : asked) columns.push_back(find_asked(layout, name, file));
  for (std::size_t i = 0; asked.empty() && layout.header && i < layout.names.size(); ++i) {
    const std::string name = lower(layout.names[i]);
    const bool known = std::find(kept.usual.begin(), kept.usual.end(), name) != kept.usual.end() ||
                       (!kept.usual_start.empty() && name.starts_with(kept.usual_start));
    if (known && !taken(static_cast<int>(i))) columns.push_back(static_cast<int>(i));
  }
  check_count(columns.size());
  for (const int column : columns) {
    const std::string& name = layout.names[static_cast<std::size_t>(column)];
    check_name_length("'" + file + "': column", name, "rename it");
    TGR_CHECK(std::find(names.begin(), names.end(), name) == names.end(), "'", file, "': column '",
              shown(name), "' would be kept twice; name each column once, or rename one of two ",
              "with the same name");
    names.push_back(name);
  }
}

// The columns of labels, once all columns have their names.
void find_labels(LogLayout& layout, const std::vector<std::string>& asked,
                 const std::string& file) {
  for (const std::string& text : asked) {
    LabelColumns found = {.label = parse_label(text), .columns = {}};
    const Label& label = found.label;
    check_name_length("--label", label.name, "give it one, as in \"bought=event==purchase\"");
    for (const LabelTest& test : label.tests) {
      const auto at = std::find(layout.names.begin(), layout.names.end(), test.column);
      found.columns.push_back(at != layout.names.end() ? static_cast<int>(at - layout.names.begin())
                                                       : find_asked(layout, test.column, file));
    }
    std::vector<std::string>& names = layout.signal_names;
    TGR_CHECK(std::find(names.begin(), names.end(), label.name) == names.end(), "--label ",
              label.name, " is there already; give it once");
    TGR_CHECK(names.size() < kMostSignals, "--label ", label.name, ": there are ", names.size(),
              " signals, and a store keeps ", kMostSignals,
              " at most: name those wanted with --signal-columns");
    names.push_back(label.name);
    layout.labels.push_back(std::move(found));
  }
}

}  // namespace

bool strip_recbole_types(std::vector<std::string>& header) {
  std::vector<std::string> names;
  for (const std::string& name : header) {
    const std::size_t colon = name.rfind(':');
    if (colon == std::string::npos) return false;
    const std::string_view type = std::string_view(name).substr(colon + 1);
    if (type != "token" && type != "token_seq" && type != "float" && type != "float_seq") {
      return false;
    }
    names.push_back(name.substr(0, colon));
  }
  header = std::move(names);
  return true;
}

std::vector<UsualNames> usual_names() {
  Names signals = kSignalNames;
  signals.insert(signals.begin(), "is_*");
  return {{"user", kUserNames},
          {"item", kItemNames},
          {"time", kTimeNames},
          {"signals", std::move(signals)},
          {"numbers", kNumberNames}};
}

int find_item_column(const std::vector<std::string>& header) {
  return find_name(header, kItemNames);
}

int find_user_column(const std::vector<std::string>& header) {
  return find_name(header, kUserNames);
}

LogFormat log_format_from_name(std::string_view name) {
  if (name == "kuairand") return LogFormat::kKuaiRand;
  if (name == "movielens") return LogFormat::kMovieLens;
  if (name == "csv") return LogFormat::kCsv;
  if (name == "parquet") return LogFormat::kParquet;
  if (name == "yambda") return LogFormat::kYambda;
  detail::throw_error("unknown --format '", name,
                      "'; there are kuairand, movielens, yambda, csv and parquet");
}

namespace {

// Which column is what, once they have their names. `first_line` is for messages.
LogLayout settle_columns(LogLayout layout, LogFormat format, const ColumnMap& map,
                         std::string_view first_line, const std::string& file) {
  const auto find = [&](const std::string& name, const Names& usual) {
    if (!name.empty()) return find_asked(layout, name, file);
    return layout.header ? find_name(layout.names, usual) : -1;
  };
  layout.user = find(map.user, kUserNames);
  layout.item = find(map.item, kItemNames);
  if (map.time != "none") layout.time = find(map.time, kTimeNames);
  const bool positional = format == LogFormat::kMovieLens && !layout.header;
  if (positional) {
    TGR_CHECK(layout.num_columns >= 4, "'", file, "': a MovieLens rating file has user, item, ",
              "rating and time; its first line '", shown(first_line), "' has ", layout.num_columns,
              " columns");
    layout.user = layout.user < 0 ? 0 : layout.user;
    layout.item = layout.item < 0 ? 1 : layout.item;
    if (layout.time < 0 && map.time != "none") layout.time = 3;
  }
  if (format == LogFormat::kKuaiRand) {
    layout.is_side_table = (layout.user < 0) != (layout.item < 0);
    layout.side_of_items = layout.is_side_table && layout.user < 0;
    check_kuairand(layout, map, file);
    if (layout.is_side_table) return layout;
  }
  if (!layout.header && !positional) {
    for (std::size_t i = 0; map.header == "no" && i < layout.num_columns; ++i) {
      layout.names[i] = "column " + std::to_string(i + 1);
    }
  }
  check_found(layout, "user", layout.user, file, map);
  check_found(layout, "item", layout.item, file, map);
  check_unique(layout, "user", layout.user, map.user, file);
  check_unique(layout, "item", layout.item, map.item, file);
  check_unique(layout, "time", layout.time, map.time, file);
  TGR_CHECK(layout.user != layout.item, "'", file, "': user and item are the same column");
  for (std::size_t i = 0; !layout.header && i < layout.num_columns; ++i) {
    layout.names[i] = "column " + std::to_string(i + 1);
  }
  if (layout.time >= 0) {
    layout.time_named_ms = lower(layout.names[static_cast<std::size_t>(layout.time)]) == "time_ms";
  }
  if (positional) {
    layout.names[2] = "rating";
    if (map.numbers.empty()) {
      layout.numbers = {2};
      layout.number_names = {"rating"};
    }
  }
  pick_list(layout, map.signals, kKeptSignals, file, layout.signals, layout.signal_names);
  if (!positional || !map.numbers.empty()) {
    pick_list(layout, map.numbers, kKeptNumbers, file, layout.numbers, layout.number_names);
  }
  find_labels(layout, map.labels, file);
  for (const FeatureRequest& request : parse_feature_requests(map.features, FeatureOwner::kEvent)) {
    layout.features.push_back(find_asked(layout, request.name, file));
  }
  return layout;
}

}  // namespace

LogLayout find_layout(LogFormat format, const ColumnMap& map, std::string_view first_bytes,
                      const std::string& file) {
  TGR_CHECK(map.header == "auto" || map.header == "yes" || map.header == "no",
            "--header is auto, yes or no, not '", map.header, "'");
  check_delimited_text(first_bytes, file);
  std::string_view first_line;
  for (std::size_t at = 0; first_line.empty() && at < first_bytes.size();) {
    const std::size_t stop = std::min(first_bytes.find('\n', at), first_bytes.size());
    first_line = first_bytes.substr(at, stop - at);
    if (first_line.ends_with('\r')) first_line.remove_suffix(1);
    at = stop + 1;
  }
  TGR_CHECK(!first_line.empty(), "'", file, "' is empty");

  LogLayout layout;
  const std::string asked = spelled_out(map.delimiter);
  layout.dialect.delimiter = asked.empty() ? guess_delimiter(first_line, file) : asked;
  layout.dialect.quotes = layout.dialect.delimiter == "," || layout.dialect.delimiter == ";" ||
                          (format == LogFormat::kCsv && layout.dialect.delimiter.size() == 1);
  MemorySource source(first_bytes);
  CsvReader reader(source, file, layout.dialect, first_bytes.size() + 1);
  reader.next();
  for (const std::string_view field : reader.fields()) layout.names.emplace_back(field);
  layout.num_columns = layout.names.size();
  TGR_CHECK(layout.num_columns <= kMostFields, "'", file, "': split at '", layout.dialect.delimiter,
            "' the first line has more than ", kMostFields,
            " columns; is --delimiter wrong, or is this not delimited text?");
  const bool recbole = map.header != "no" && strip_recbole_types(layout.names);
  if (recbole && layout.dialect.delimiter == "\t") layout.dialect.quotes = false;  // as it writes
  layout.header = map.header == "auto" ? recbole || header_guess(format, map, layout.names)
                                       : map.header == "yes";
  return settle_columns(std::move(layout), format, map, first_line, file);
}

LogLayout find_named_layout(const ColumnMap& map, std::vector<std::string> names,
                            const std::string& file) {
  // What lists are called where a row is a user.
  const auto accept_plural = [&](const std::string& asked, const char* plural, const char* usual) {
    if (!asked.empty() || std::find(names.begin(), names.end(), usual) != names.end()) return;
    const auto at = std::find(names.begin(), names.end(), plural);
    if (at != names.end()) *at = usual;
  };
  accept_plural(map.item, "item_ids", "item_id");
  accept_plural(map.time, "timestamps", "timestamp");
  LogLayout layout;
  layout.header = true;
  layout.num_columns = names.size();
  layout.names = std::move(names);
  return settle_columns(std::move(layout), LogFormat::kCsv, map, "", file);
}

std::vector<std::string> log_columns(const ColumnMap& map, const std::vector<std::string>& names,
                                     const std::string& file) {
  std::vector<std::string> found;
  for (const int column : find_named_layout(map, names, file).columns()) {
    found.push_back(names[static_cast<std::size_t>(column)]);
  }
  return found;
}

std::vector<int> LogLayout::columns() const {
  std::set<int> all = {user, item};
  if (time >= 0) all.insert(time);
  for (const auto* list : {&signals, &numbers, &features}) all.insert(list->begin(), list->end());
  for (const LabelColumns& label : labels) all.insert(label.columns.begin(), label.columns.end());
  return {all.begin(), all.end()};
}

}  // namespace turbogr::data
