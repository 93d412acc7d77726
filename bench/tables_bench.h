// What it costs to have many tables: a step's rows of several tables found, fetched, their
// gradients returned and the rows updated, against one table of the same bytes.
#pragma once

#include <cstdint>

#include "bench/timing.h"
#include "turbogr/core/device.h"

namespace turbogr::bench {

struct TablesProblem {
  std::int64_t tables = 11;
  std::int64_t rows = 1'000'000;  // of all tables together
  std::int64_t ids = 200'000;     // of a step, with repeats; as many of each table
  std::int64_t width = 64;
  double seconds = 5;
  int threads = 0;
  Device device = Device::kCpu;
  std::uint64_t seed = 1;
};

struct TablesFigures {
  Timing many, one;
  double bytes = 0;  // of the tables and their state
};

// Checks first that both have moved the rows they were told to, and by as much.
TablesFigures time_tables(const TablesProblem& problem);

}  // namespace turbogr::bench
