// Traces of all ranks as one file.
#pragma once

#include <cstdint>
#include <string>

#include "turbogr/core/trace.h"
#include "turbogr/dist/communicator.h"

namespace turbogr::run {

// Rank 0 writes it. Clocks of machines differ: they are set by the end of a barrier. start_ns: when
// this rank began, by Trace::now_ns. Collective.
void write_traces(dist::Communicator& world, const Trace& trace, std::int64_t start_ns,
                  const std::string& path);

}  // namespace turbogr::run
