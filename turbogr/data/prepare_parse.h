// The first step of prepare: logs to rows and distinct ids. Internal to it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "turbogr/core/progress.h"
#include "turbogr/data/event_rows.h"
#include "turbogr/data/features/event_features.h"
#include "turbogr/data/features/table_files.h"
#include "turbogr/data/field.h"
#include "turbogr/data/id_collector.h"
#include "turbogr/data/prepare.h"

namespace turbogr::data {

// How --memory is shared out. What comes on top (buffers, the program) is in `kProgramBytes`.
struct MemoryPlan {
  explicit MemoryPlan(std::size_t memory_bytes);

  std::size_t rows;     // rows and the 24 bytes each takes to sort
  std::size_t ids;      // gathering the ids of one side
  std::size_t lookup;   // the lookup table of one side, beside a full buffer of rows
  std::size_t working;  // any one thing, with no rows in memory

  // Places in a buffer are 32-bit numbers.
  std::size_t row_capacity(std::size_t stride) const {
    return std::min<std::size_t>(rows / (stride + 24), 0xffffffffu);
  }
};

// What parsing leaves for the steps after it.
struct ParsedLog {
  std::unique_ptr<EventRows> rows;
  SortedIds users;
  SortedIds items;
  std::optional<SortedIds> table_items;  // of them those that stay without events, if any may
  std::vector<std::string> signal_names;
  std::vector<std::string> number_names;
  // In rows behind the numbers.
  std::unique_ptr<EventFeatures> event_features;
  TimeUnit time_unit = TimeUnit::kNone;
  std::int64_t time_divisor = 1;  // times in rows over this are in time_unit
  std::int64_t first_time = 0;    // as in the rows
  std::int64_t last_time = 0;
  // KuaiRand's feature files found among the inputs.
  std::vector<std::filesystem::path> user_tables;
  std::vector<std::filesystem::path> item_tables;
};

// `tables` are those that the options name. Temporary files go into `folder`. Adds to report what
// it saw.
ParsedLog parse_logs(ThreadPool& pool, const PrepareOptions& options, const TableFiles& tables,
                     const MemoryPlan& plan, const std::filesystem::path& folder,
                     Progress& progress, PrepareReport& report);

}  // namespace turbogr::data
