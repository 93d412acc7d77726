// What a device fills in for weighted_rows.h.
#pragma once

#include "turbogr/ops/rows/weighted_rows.h"

namespace turbogr::ops::kernels {

template <class T, class Out>
void sum_weighted_rows(Cpu cpu, Rows<const T> rows, const RowPicks& picks, Rows<Out> out);

}  // namespace turbogr::ops::kernels
