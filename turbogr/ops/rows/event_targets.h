// What leaves a ranking model's layers: the targets. Where they lie among tokens and events, and
// how their gradients find back. Their rows are gathered by gather_rows (embedding.h).
//
// M targets, in the order of their sequences.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/rows/event_sequences.h"

namespace turbogr::ops {

struct EventTargets {
  View<std::int64_t, 1> tokens;  // [M], of [0, N)
  View<std::int64_t, 1> events;  // [M], of [0, N - B c)
  View<std::int64_t, 1> times;   // [M]
};

// M must be the sum of num_targets.
void find_targets(const Context& ctx, const EventSequences& sequences, const EventTargets& targets);
std::size_t find_targets_workspace_bytes(const Context& ctx, std::int64_t sequences);

// out(places(i)) = rows(i), and zeros everywhere else; places are distinct.
//   rows [M, D]    places [M]    out [N, D]
template <class T>
void spread_rows(const Context& ctx, Rows<const T> rows, View<const std::int64_t, 1> places,
                 Rows<T> out);

// out(places(i)) += rows(i); places are distinct.
template <class T>
void add_rows_at(const Context& ctx, Rows<const T> rows, View<const std::int64_t, 1> places,
                 Rows<T> out);

}  // namespace turbogr::ops
