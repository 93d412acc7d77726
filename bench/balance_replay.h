// Replays a table of sequence lengths through three ways of filling the ranks' batches, and
// measures how long ranks would wait for each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/balance/cost_model.h"

namespace turbogr::bench {

// `kuairand27k`: the lengths of that data set's users, from built-in quantiles. Anything else is a
// CSV file: a header line, a length in the first column, a byte-order mark or none.
std::vector<std::int64_t> length_table(const std::string& text);

struct ReplayOptions {
  int ranks = 8;
  std::int64_t cap = 4096;      // longest sequence; longer ones are cut
  std::int64_t budget = 65536;  // tokens a rank
  std::int64_t steps = 200;
  std::uint64_t seed = 1;
  balance::CostModel cost;
};

struct ReplayResult {
  std::string strategy;     // fixed: budget / cap sequences a rank; token: sequences up to the
                            // budget; reallocation: those of `token`, shared out again by cost
  double waiting_mean = 0;  // shares of a step
  double waiting_p99 = 0;
  std::int64_t token_gap = 0;  // largest difference between two ranks in a step
  double plan_ms = 0;          // mean a step
  double plan_ms_max = 0;
};

// The three strategies over the same endless stream: the table shuffled, again and again. Every
// reallocation is checked: no sequence lost or repeated, no rank over its budget.
std::vector<ReplayResult> replay(const std::vector<std::int64_t>& table,
                                 const ReplayOptions& options);

}  // namespace turbogr::bench
