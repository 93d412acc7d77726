// What leaves a ranking model's layers: the targets. Where they lie among tokens and events, and
// how their gradients find back. Their rows are gathered by gather_rows (embedding.h).
//
// M targets, in the order of their sequences.
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/rows/event_sequences.h"

namespace turbogr::ops {

struct EventTargets {
  View<std::int64_t, 1> tokens;  // [M], of [0, N)
  View<std::int64_t, 1> events;  // [M], of [0, N - B c)
  View<std::int64_t, 1> times;   // [M]
  View<std::uint64_t, 1> keys;   // [M], of their tokens; their indices where those have none
  View<std::int64_t, 1> starts;  // [B + 1], the number of targets before each sequence, and M
};

// M must be the sum of num_targets. `row_keys` [N] tells tokens apart, or is empty.
void find_targets(const Context& ctx, const EventSequences& sequences,
                  View<const std::uint64_t, 1> row_keys, const EventTargets& targets);

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
