// Rows kept in f16, each scaled by its own largest magnitude: row r is values(r) * scale(r), every
// value at most 1. Half the bytes of f32 with an error of at most 2^-12 of the row's largest
// element, however large or small the row is.
//
//   gather_half_rows(ctx, table.weights(), ids, {values, scale});
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

struct HalfRows {
  Rows<const f16> values;      // [U, D]
  View<const float, 1> scale;  // [U]

  TGR_HD std::int64_t rows() const { return values.rows; }
  TGR_HD bool empty() const { return values.data == nullptr; }
};

struct HalfRowsOut {
  Rows<f16> values;
  View<float, 1> scale;

  operator HalfRows() const { return {values, scale}; }
};

// out(i) = table(ids(i)), rounded.
//   table [V, D]    ids [N]    out [N, D]
// An id outside [0, V) is an Error naming the first such position, and nothing is written; on a GPU
// its row is left out. A GPU's table may be in pinned host memory.
void gather_half_rows(const Context& ctx, Rows<const float> table, View<const std::int64_t, 1> ids,
                      const HalfRowsOut& out);
// The same from a table that is f16 already: a copy.
void gather_half_rows(const Context& ctx, const HalfRows& table, View<const std::int64_t, 1> ids,
                      const HalfRowsOut& out);
// out(ids(i)) = rows(ids(i)), rounded: keeps an f16 copy of a table up to date where it changed.
// The ids are distinct.
void refresh_half_rows(const Context& ctx, Rows<const float> table, View<const std::int64_t, 1> ids,
                       const HalfRowsOut& out);

}  // namespace turbogr::ops
