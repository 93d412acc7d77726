// What a device fills in for event_input.h.
#pragma once

#include "turbogr/ops/rows/event_input.h"

namespace turbogr::ops::kernels {

template <class T>
void event_input(Cpu cpu, const EventSequences& sequences, const EventTokens<const T>& tokens,
                 const EventTables<const Accum<T>>& tables, const EventInputOptions& options,
                 Rows<T> x);
template <class T>
void event_input_backward(Cpu cpu, const EventSequences& sequences, Rows<const T> dx,
                          const EventInputOptions& options, const EventTokens<T>& dtokens,
                          const EventTables<Accum<T>>& dtables);
template <class T>
std::size_t event_input_workspace_bytes(Cpu cpu, std::int64_t tokens, std::int64_t width);

template <class T>
void event_input(Cuda cuda, const EventSequences& sequences, const EventTokens<const T>& tokens,
                 const EventTables<const Accum<T>>& tables, const EventInputOptions& options,
                 Rows<T> x);
template <class T>
void event_input_backward(Cuda cuda, const EventSequences& sequences, Rows<const T> dx,
                          const EventInputOptions& options, const EventTokens<T>& dtokens,
                          const EventTables<Accum<T>>& dtables);
template <class T>
std::size_t event_input_workspace_bytes(Cuda cuda, std::int64_t tokens, std::int64_t width);

// The specification, in f64, has sources of its own.
template <>
void event_input<double>(Cpu cpu, const EventSequences& sequences,
                         const EventTokens<const double>& tokens,
                         const EventTables<const double>& tables, const EventInputOptions& options,
                         Rows<double> x);
template <>
void event_input_backward<double>(Cpu cpu, const EventSequences& sequences, Rows<const double> dx,
                                  const EventInputOptions& options,
                                  const EventTokens<double>& dtokens,
                                  const EventTables<double>& dtables);

}  // namespace turbogr::ops::kernels
