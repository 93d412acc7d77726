// How long collectives of this world's ranks take, by size: what a plan's links are described with.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/dist/communicator.h"
#include "turbogr/plan/describe.h"

namespace turbogr::bench {

struct CollectiveProblem {
  std::int64_t largest = 4 << 20;  // bytes of a rank, the most
  double seconds = 0.5;            // for each collective and size, about
};

// Exchanges of rank 0 with a rank of its machine and with one of another, where there are such
// ranks; then all_reduce, all_gather and all_to_all of all. Collective; rank 0 gets all of them.
std::vector<plan::CollectiveTime> measure_collectives(dist::Communicator& world,
                                                      const CollectiveProblem& problem);

}  // namespace turbogr::bench
