// A ranking model's input: x = dropout(scale * token + position[place] + time[bucket]).
//
//   place   of prefix token k: k; of history event j of h, counted from the oldest: c + h - j, at
//           most P - 1; of a target: c. So both the newest event and the targets always mean the
//           same place, however long the history is.
//   bucket  of a token at time t: the largest k with 60 k^2 <= q - t (or 60 e^k), at most T, where
//   q
//           is the time of the sequence's last event; prefix tokens have t = 0
//
//   event_input<float>(ctx, sequences, {prefix, events}, {position, time}, {.scale = 16}, x);
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/dense/dropout.h"
#include "turbogr/ops/rows/event_sequences.h"

namespace turbogr::ops {

// Tokens as they are made: prefix [B c, D], events [N - B c, D]. T may be const.
template <class T>
struct EventTokens {
  Rows<T> prefix;
  Rows<T> events;
};

// Position [P, D] with P above c, time [T + 1, D]. A is Accum<T>, const where they are read.
template <class A>
struct EventTables {
  View<A, 2> position;
  View<A, 2> time;
};

struct EventInputOptions {
  double scale = 1;  // of tokens
  TimeBuckets buckets = TimeBuckets::kSquareRoot;
  DropoutOptions dropout;
};

// x [N, D], sequence by sequence.
template <class T>
void event_input(const Context& ctx, const EventSequences& sequences,
                 const EventTokens<const T>& tokens, const EventTables<const Accum<T>>& tables,
                 const EventInputOptions& options, Rows<T> x);

// Overwrites the gradients of tokens, adds to those of tables: token by token in order on a CPU,
// whatever the number of threads, and on a GPU in another order that is always the same.
template <class T>
void event_input_backward(const Context& ctx, const EventSequences& sequences, Rows<const T> dx,
                          const EventInputOptions& options, const EventTokens<T>& dtokens,
                          const EventTables<Accum<T>>& dtables);

// Of either, for N tokens of width D.
template <class T>
std::size_t event_input_workspace_bytes(const Context& ctx, std::int64_t tokens,
                                        std::int64_t width);

}  // namespace turbogr::ops
