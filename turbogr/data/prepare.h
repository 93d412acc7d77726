// From raw logs to a sequence store, in memory that does not grow with the input.
//
// Rows are parsed once and kept (the surplus in a temporary file) while the distinct ids are
// gathered; ids are numbered in ascending order; repeats go and the k-core is found if that is
// asked for; rows are sorted by (user, time, input order) and written. The store depends on the
// input and on what is asked of it, never on the memory or the threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "turbogr/data/arrow/arrow_abi.h"
#include "turbogr/data/bad_rows.h"
#include "turbogr/data/log_layout.h"

namespace turbogr::data {

// What becomes of rows that say the same thing twice; the first stays.
enum class Repeats : std::uint8_t {
  kKeep,
  kDropEvents,  // the same user, item and time
  kDropItems,   // the same user and item, whenever
};

// A log that is in memory, or comes out of another library: read once, and released then.
struct ArrowInput {
  std::string name;  // for messages
  ArrowArrayStream* stream = nullptr;
};

// A table about items or users: delimited text, Parquet (a file, or a folder of them), or one in
// memory, which is read once and released then.
struct TableInput {
  TableInput(std::filesystem::path file)  // NOLINT(google-explicit-constructor): a path is one
      : path(std::move(file)) {}
  TableInput(std::filesystem::path name, ArrowArrayStream* in_memory)
      : path(std::move(name)), stream(in_memory) {}

  std::filesystem::path path;  // or what messages call it
  ArrowArrayStream* stream = nullptr;
  bool kept = true;  // goes along in the store, as text, beside its features
};

struct PrepareOptions {
  LogFormat format = LogFormat::kCsv;
  std::vector<std::filesystem::path> inputs;  // "-": standard input
  std::vector<ArrowInput> streams;            // after the inputs
  std::filesystem::path out;
  bool overwrite = false;
  ColumnMap columns;
  std::string time_unit = "auto";  // auto, s or ms: of integer times
  std::string ids = "auto";        // auto, integer or string
  std::string keep_signal;         // keep only rows that carry it
  Repeats repeats = Repeats::kKeep;
  std::int64_t min_user = 0;  // k-core: events a user, events an item
  std::int64_t min_item = 0;
  BadRowPolicy bad_rows;
  std::size_t memory_bytes = std::size_t{2} << 30;
  int threads = 0;  // 0: one a core, up to 8
  std::vector<TableInput> user_tables;
  std::vector<TableInput> item_tables;
  // Columns of those tables to keep as features: name, or name:kind. The log's are in `columns`.
  std::vector<std::string> user_features;
  std::vector<std::string> item_features;
  // The store also has the items that the item tables with features speak of and no event does.
  bool keep_items_without_events = false;
  // Of the logs (in their order, cut into `shards` pieces of neighbours) only piece `shard`, from
  // 0: parts that merge_stores joins. Of Parquet an input is one log, file or folder.
  int shard = 0, shards = 1;
  bool show_progress = false;
};

struct PrepareReport {
  std::int64_t input_bytes = 0;  // of the files, as they lie on the disk
  std::int64_t rows = 0;         // read; of a record with an open quote every line
  std::int64_t bad_rows = 0;
  std::int64_t without_signal = 0;  // left out by keep_signal
  std::int64_t repeated = 0;        // left out as repeats
  std::int64_t filtered = 0;        // left out by the k-core
  std::int64_t users = 0;
  std::int64_t short_users = 0;  // of them with too few events to train on or to evaluate
  std::int64_t items = 0;
  std::int64_t items_without_events = 0;
  std::int64_t events = 0;
  std::size_t sorted_runs = 0;  // 0: all rows fitted in memory
  double parse_seconds = 0;
  double seconds = 0;
  std::vector<std::string> features;  // each in words: kind, values, missing
  std::vector<std::string> remarks;   // what a person should know
};

// Throws with nothing left behind but, after a hard kill, a folder `<out>.partial-<pid>`.
PrepareReport prepare(const PrepareOptions& options);

}  // namespace turbogr::data
