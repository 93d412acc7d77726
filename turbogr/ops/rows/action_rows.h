// Rows that are sums of a small table's rows: token i gets the sum of the rows of the set bits of
// its mask (clicked, liked, ...).
//
// N tokens, A table rows (bits), at most 32, D width.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// rows(i) = sum over bits b of masks(i) of table(b), lowest bit first.
//   table [A, D]    masks [N]    rows [N, D]
template <class T>
void action_rows(const Context& ctx, View<const Accum<T>, 2> table,
                 View<const std::uint32_t, 1> masks, Rows<T> rows);

// dtable(b) += the rows of drows whose mask has bit b, in an order that depends on N alone.
template <class T>
void action_rows_backward(const Context& ctx, Rows<const T> drows,
                          View<const std::uint32_t, 1> masks, View<Accum<T>, 2> dtable);
template <class T>
std::size_t action_rows_workspace_bytes(const Context& ctx, std::int64_t tokens,
                                        std::int64_t actions, std::int64_t width);

}  // namespace turbogr::ops
