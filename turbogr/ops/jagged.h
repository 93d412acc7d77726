// Moves whole rows between jagged batches. Each of these is linear and copies, so backward is
// another copy: jagged_split is the backward of jagged_concat and the other way round, from_padded
// that of to_padded and the other way round.
//
// B sequences, N tokens, D width, S padded length. Offsets of an output are made first:
//
//   const std::int64_t tokens = concat_offsets(ctx, a.offsets, b.offsets, offsets);
//   jagged_concat<float>(ctx, a, b, {values, offsets});
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// These three write offsets [B + 1] and return the last, the number of tokens.
//   lengths [B], none negative
std::int64_t offsets_from_lengths(const Context& ctx, View<const std::int64_t, 1> lengths,
                                  View<std::int64_t, 1> offsets);
std::int64_t concat_offsets(const Context& ctx, Offsets a, Offsets b,
                            View<std::int64_t, 1> offsets);
std::int64_t last_k_offsets(const Context& ctx, Offsets x, std::int64_t k,
                            View<std::int64_t, 1> offsets);

// Sequence by sequence, a's rows and then b's. All three have B sequences of width D, and out's
// offsets are those of concat_offsets.
template <class T>
void jagged_concat(const Context& ctx, Jagged<const T> a, Jagged<const T> b, Jagged<T> out);

// The inverse: the offsets of a and b say where each sequence of x is cut.
template <class T>
void jagged_split(const Context& ctx, Jagged<const T> x, Jagged<T> a, Jagged<T> b);

// The last min(k, length) rows of each sequence; out's offsets are those of last_k_offsets.
template <class T>
void last_k_rows(const Context& ctx, Jagged<const T> x, std::int64_t k, Jagged<T> out);

// Overwrites dx: zero above the last k rows of a sequence.
template <class T>
void last_k_rows_backward(const Context& ctx, Jagged<const T> dout, std::int64_t k, Jagged<T> dx);

// For baselines only: the fast path never pads. Rows past a sequence's end are zero; a sequence
// longer than S is an Error.
//   x [N, D] in B sequences    out [B, S, D]
template <class T>
void to_padded(const Context& ctx, Jagged<const T> x, View<T, 3> out);
template <class T>
void from_padded(const Context& ctx, View<const T, 3> x, Jagged<T> out);

}  // namespace turbogr::ops
