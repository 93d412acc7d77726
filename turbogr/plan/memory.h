// What a rank's run takes of memory, from the trainer's own plan: it is made for the device's
// formats and the layout of ranks without taking any of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "turbogr/run/config.h"

namespace turbogr::plan {

struct RankMemory {
  double device = 0;       // bytes, all of it
  double activations = 0;  // of it, what layers keep for the backward pass
  double table = 0;        // rows and their optimiser's state
  double host = 0;         // the host's: steps drawn, a table kept there
};

// nodes [ranks]: their machines. `capacity`: tokens of the largest batch.
RankMemory memory_of(const run::Config& config, const std::vector<int>& nodes,
                     std::int64_t num_items, std::int64_t capacity);

}  // namespace turbogr::plan
