// Weighted sums of picked rows: a sparse matrix times rows. It brings the rows of a table to the
// features that read them, several together where a feature is a bag, and with the transposed
// matrix their gradients back.
//
//   sum_weighted_rows<float, float>(ctx, rows, picks, out);
//
// P sums, n picks, E width.
#pragma once

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

// out(p) = sum over the picks of p, in their order, of weight * rows(index); zeros where there are
// none. In f32, whatever the formats: float, or bf16 into either. On a CPU.
//   rows [R, E]    out [P, E]
template <class T, class Out>
void sum_weighted_rows(const Context& ctx, Rows<const T> rows, const RowPicks& picks,
                       Rows<Out> out);

}  // namespace turbogr::ops
