// What a device fills in for half_rows.h.
#pragma once

#include "turbogr/ops/rows/half_rows.h"

namespace turbogr::ops::kernels {

// Row i of the input is ids(i); it goes to row i, or to row ids(i) where `in_place`.
void to_half_rows(Cpu cpu, Rows<const float> table, View<const std::int64_t, 1> ids, bool in_place,
                  const HalfRowsOut& out);
void to_half_rows(Cuda cuda, Rows<const float> table, View<const std::int64_t, 1> ids,
                  bool in_place, const HalfRowsOut& out);
void copy_half_rows(Cpu cpu, const HalfRows& table, View<const std::int64_t, 1> ids,
                    const HalfRowsOut& out);
void copy_half_rows(Cuda cuda, const HalfRows& table, View<const std::int64_t, 1> ids,
                    const HalfRowsOut& out);

}  // namespace turbogr::ops::kernels
