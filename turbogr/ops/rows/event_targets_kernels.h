// What a device fills in for event_targets.h.
#pragma once

#include "turbogr/ops/rows/event_targets.h"

namespace turbogr::ops::kernels {

void find_targets(Cpu cpu, const EventSequences& sequences, const EventTargets& targets);
template <class T>
void spread_rows(Cpu cpu, Rows<const T> rows, View<const std::int64_t, 1> places, Rows<T> out);
template <class T>
void add_rows_at(Cpu cpu, Rows<const T> rows, View<const std::int64_t, 1> places, Rows<T> out);

void find_targets(Cuda cuda, const EventSequences& sequences, const EventTargets& targets);
template <class T>
void spread_rows(Cuda cuda, Rows<const T> rows, View<const std::int64_t, 1> places, Rows<T> out);
template <class T>
void add_rows_at(Cuda cuda, Rows<const T> rows, View<const std::int64_t, 1> places, Rows<T> out);
std::size_t find_targets_workspace_bytes(Cuda cuda, std::int64_t sequences);

}  // namespace turbogr::ops::kernels
