// What a device fills in for event_targets.h.
#pragma once

#include "turbogr/ops/rows/event_targets.h"

namespace turbogr::ops::kernels {

void find_targets(Cpu cpu, const EventSequences& sequences, View<const std::uint64_t, 1> row_keys,
                  const EventTargets& targets);
template <class T>
void spread_rows(Cpu cpu, Rows<const T> rows, View<const std::int64_t, 1> places, Rows<T> out);
template <class T>
void add_rows_at(Cpu cpu, Rows<const T> rows, View<const std::int64_t, 1> places, Rows<T> out);

void find_targets(Cuda cuda, const EventSequences& sequences, View<const std::uint64_t, 1> row_keys,
                  const EventTargets& targets);
template <class T>
void spread_rows(Cuda cuda, Rows<const T> rows, View<const std::int64_t, 1> places, Rows<T> out);
template <class T>
void add_rows_at(Cuda cuda, Rows<const T> rows, View<const std::int64_t, 1> places, Rows<T> out);

}  // namespace turbogr::ops::kernels
