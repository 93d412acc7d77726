// What a device fills in for random_rows.h.
#pragma once

#include "turbogr/ops/rows/random_rows.h"

namespace turbogr::ops::kernels {

template <class T>
void random_rows(Cpu cpu, View<T, 2> table, std::int64_t first_row, std::uint64_t seed,
                 RowStart start);
template <class T>
void random_rows(Cuda cuda, View<T, 2> table, std::int64_t first_row, std::uint64_t seed,
                 RowStart start);

}  // namespace turbogr::ops::kernels
