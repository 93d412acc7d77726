// The cores that the ranks of a machine may run on. mpirun binds ranks to cores, two to one core
// each unless told otherwise, and a rank's threads then share what it was given.
#pragma once

#include <cstdint>
#include <string>

#include "turbogr/dist/communicator.h"

namespace turbogr::run {

struct RankCores {
  int own = 1;       // of this rank
  int together = 1;  // of all ranks of its machine
  int ranks = 1;     // there
  int launcher = 1;  // of the process that started this one
};
// Collective.
RankCores rank_cores(dist::Communicator& world);

// The threads asked for; 0: this rank's share of the cores.
int threads_for_rank(std::int64_t asked, const RankCores& cores);

// Where the launcher has left half of its cores or more to nobody, and what to do; else empty.
std::string unused_cores(const RankCores& cores);

}  // namespace turbogr::run
