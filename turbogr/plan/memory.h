// What a rank's run takes of memory, from the trainer's own plan: it is made for the device's
// formats and the layout of ranks without taking any of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "turbogr/plan/planned_features.h"
#include "turbogr/run/config.h"

namespace turbogr::plan {

// Bytes of the rank that needs most. Ranks plan for batches of one size; their shards of tables
// differ by a row a table.
struct RankMemory {
  double device = 0;        // all of it
  double activations = 0;   // of it, what layers keep for the backward pass
  double table = 0;         // rows of all tables and their optimisers' state, wherever they are
  double host = 0;          // of its host: the three below
  double host_steps = 0;    // ids and negatives of steps on their way, pinned inputs, the sampler
  double host_batches = 0;  // read ahead and kept
  double host_table = 0;    // pinned
  bool one_memory = false;  // a CPU's device is its host
  std::vector<double> fewer = {0};  // [ranks], so much less each has where the tables are

  double device_of(std::size_t rank) const { return device - (host_table > 0 ? 0 : fewer[rank]); }
  double host_of(std::size_t rank) const { return host - (tables_on_host() ? fewer[rank] : 0); }
  double least_device() const { return device - (host_table > 0 ? 0 : most_fewer()); }
  double least_host() const { return host - (tables_on_host() ? most_fewer() : 0); }

 private:
  bool tables_on_host() const { return one_memory || host_table > 0; }
  double most_fewer() const { return *std::max_element(fewer.begin(), fewer.end()); }
};

// Of the data that a run has.
struct RunShape {
  std::int64_t num_items = 0;
  std::int64_t tokens = 0, sequences = 0;     // of the largest batch
  const PlannedFeatures* features = nullptr;  // null: none
};

// nodes [ranks]: their machines.
RankMemory memory_of(const run::Config& config, const std::vector<int>& nodes,
                     const RunShape& shape);

}  // namespace turbogr::plan
