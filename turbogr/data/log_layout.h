// Which column of a log means what, and how that is found out: from a column map, from the format,
// or from the usual names in the header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/csv_reader.h"
#include "turbogr/data/label.h"

namespace turbogr::data {

// What a store keeps of each event beside user, item and time.
inline constexpr std::size_t kMostSignals = 32;
inline constexpr std::size_t kMostNumbers = 64;

enum class LogFormat : std::uint8_t { kKuaiRand, kMovieLens, kCsv, kParquet, kYambda };
LogFormat log_format_from_name(std::string_view name);  // throws, listing those known

// What the user asks for. A column is named, or numbered from 1; empty means find it.
struct ColumnMap {
  std::string user;
  std::string item;
  std::string time;                   // "none": the order of the file
  std::vector<std::string> signals;   // "none" alone: keep none
  std::vector<std::string> numbers;   // likewise
  std::vector<std::string> features;  // of events: name, or name:kind
  std::vector<std::string> labels;    // signals made of other columns: "rating>=4"
  std::string delimiter;              // "tab" is spelled out
  std::string header = "auto";        // auto, yes or no
};

// A label and the column that each of its tests looks at.
struct LabelColumns {
  Label label;
  std::vector<int> columns;
};

// Where things stand in one file. Indices from 0; -1: not there.
struct LogLayout {
  CsvDialect dialect;
  bool header = false;
  std::size_t num_columns = 0;
  std::vector<std::string> names;  // of all columns; "column 3" without a header
  int user = -1;
  int item = -1;
  int time = -1;
  std::vector<int> signals;
  std::vector<int> numbers;
  std::vector<int> features;  // one a feature asked for
  std::vector<LabelColumns> labels;
  std::vector<std::string> signal_names;  // of the signals, then of the labels
  std::vector<std::string> number_names;
  bool time_named_ms = false;

  bool is_side_table = false;  // KuaiRand's feature files: one of the two ids only
  bool side_of_items = false;

  std::vector<int> columns() const;  // all that the log is made of, each once, in ascending order
};

// From the first bytes of a file. Throws when a column that is needed is not there, saying which
// columns are.
LogLayout find_layout(LogFormat format, const ColumnMap& map, std::string_view first_bytes,
                      const std::string& file);

// The same for columns that have names and no delimiters: those of Arrow and Parquet.
LogLayout find_named_layout(const ColumnMap& map, std::vector<std::string> names,
                            const std::string& file);

// Of these names, those that such a layout reads: what a file of columns has to bring.
std::vector<std::string> log_columns(const ColumnMap& map, const std::vector<std::string>& names,
                                     const std::string& file);

// The parts, for other delimited files. `::`, comma, tab, semicolon or bar, whichever the line has
// most of; throws when it has none.
std::string guess_delimiter(std::string_view line, const std::string& file);
// By their usual names; -1: none.
int find_item_column(const std::vector<std::string>& header);
int find_user_column(const std::vector<std::string>& header);

// RecBole's headers have a type behind every name: user_id:token, rating:float. True when this is
// one, and the types are gone.
bool strip_recbole_types(std::vector<std::string>& header);

// The names a column is known by, upper or lower case; for the help.
struct UsualNames {
  std::string_view what;  // user, item, time, signals, numbers
  std::vector<std::string_view> names;
};
std::vector<UsualNames> usual_names();

}  // namespace turbogr::data
