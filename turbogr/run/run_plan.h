// Lines that a run prints before it starts, whatever its task.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/dist/device_communicator.h"
#include "turbogr/run/task.h"

namespace turbogr::run {

inline double mib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void warn_of_warmup(const Config& config, std::int64_t total_steps);
void print_store(const TaskParts& parts);
void print_ranks(const TaskParts& parts, const dist::LinkChoice& link);  // of several
void print_compute(const TaskParts& parts);

}  // namespace turbogr::run
