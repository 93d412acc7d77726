// What was done with each event, as a row of A blocks: block j of a history event is row j of a
// small table where bit j of its mask is set, else zeros. A target has one trained row instead:
// what will be done with it is the label, and its mask is never read.
//
// A bits, at most 32, W the width of a block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/rows/event_sequences.h"

namespace turbogr::ops {

// A is Accum<T>, const where they are read.
template <class A>
struct ActionBlocks {
  View<A, 2> table;   // [A, W]
  View<A, 1> target;  // [A W]
};

// masks [N - B c], of events; rows [N - B c, A W].
template <class T>
void action_bits(const Context& ctx, const EventSequences& sequences,
                 const ActionBlocks<const Accum<T>>& blocks, View<const std::uint32_t, 1> masks,
                 Rows<T> rows);

// Adds to the blocks' gradients, event by event in order; on a GPU in another order that is always
// the same.
template <class T>
void action_bits_backward(const Context& ctx, const EventSequences& sequences,
                          View<const std::uint32_t, 1> masks, Rows<const T> drows,
                          const ActionBlocks<Accum<T>>& dblocks);

// Of backward, for A W columns.
template <class T>
std::size_t action_bits_workspace_bytes(const Context& ctx, std::int64_t cols);

}  // namespace turbogr::ops
