// The step of prepare that --deduplicate asks for: of rows that say the same thing twice the first
// stays. Internal to it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "turbogr/data/prepare_parse.h"
#include "turbogr/data/row_numbering.h"

namespace turbogr::data {

// After the rows are numbered; returns how many went. Takes a bit an item beside what sorting does.
// Rows on the disk come out sorted, numbered and in a file of their own.
std::int64_t drop_repeats(ThreadPool& pool, Repeats repeats, RowNumbering& numbering,
                          ParsedLog& log, const MemoryPlan& plan,
                          const std::filesystem::path& folder);

}  // namespace turbogr::data
