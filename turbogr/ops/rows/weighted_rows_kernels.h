// What a device fills in for weighted_rows.h.
#pragma once

#include "turbogr/ops/rows/weighted_rows.h"

namespace turbogr::ops::kernels {

template <class T, class Out>
void sum_weighted_rows(Cpu cpu, Rows<const T> rows, const RowPicks& picks, Rows<Out> out);
template <class T, class Out>
void sum_weighted_rows(Cuda cuda, Rows<const T> rows, const RowPicks& picks, Rows<Out> out);
std::size_t sum_weighted_rows_workspace_bytes(Cuda cuda, std::int64_t picks, std::int64_t width);

}  // namespace turbogr::ops::kernels
