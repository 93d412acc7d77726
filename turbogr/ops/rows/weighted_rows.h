// Weighted sums of picked rows: a sparse matrix times rows. It brings the rows of a table to the
// features that read them, several together where a feature is a bag, and with the transposed
// matrix their gradients back.
//
//   sum_weighted_rows<float, float>(ctx, rows, picks, out);
//
// P sums, n picks, E width.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// Of sum p: picks offsets(p) up to offsets(p + 1).
struct RowPicks {
  Offsets offsets;                    // [P + 1], from 0 to n
  View<const std::int32_t, 1> index;  // [n], of rows
  View<const float, 1> weights;       // [n]

  std::int64_t sums() const { return offsets.shape[0] - 1; }
};

// out(p) = sum over the picks of p of weight * rows(index), in an order that depends on the offsets
// alone, on a CPU their own; zeros where there are none. In f32, whatever the formats: float, or
// bf16 into either.
//   rows [R, E]    out [P, E]
template <class T, class Out>
void sum_weighted_rows(const Context& ctx, Rows<const T> rows, const RowPicks& picks,
                       Rows<Out> out);

// For up to n picks.
std::size_t sum_weighted_rows_workspace_bytes(const Context& ctx, std::int64_t picks,
                                              std::int64_t width);

}  // namespace turbogr::ops
