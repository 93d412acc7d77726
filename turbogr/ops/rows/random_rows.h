// Random starts of a table: each row a function of the seed and its own index, so that a larger
// table begins with the rows of a smaller one.
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// Rows [first_row, V) of table [V, D] become scale * normal, redrawn while outside [-2, 2]. A GPU's
// logarithms and cosines may round the f64 they are made in otherwise than the host's.
template <class T>  // float; bf16 or f16: rounded to the nearest
void truncated_normal_rows(const Context& ctx, View<T, 2> table, std::int64_t first_row,
                           std::uint64_t seed, double scale);

// One such row on the host, as row `index` of any table has it.
void truncated_normal_row(std::uint64_t seed, std::int64_t index, double scale, std::int64_t width,
                          float* row);

}  // namespace turbogr::ops
