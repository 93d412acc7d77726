// Random starts of a table: each row a function of the seed and its own index, so that a larger
// table begins with the rows of a smaller one.
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// What rows start as: scale * normal, redrawn while outside [-2, 2], or uniform numbers of [-scale,
// scale).
struct RowStart {
  double scale = 0.02;
  bool is_uniform = false;

  RowStart() = default;
  RowStart(double normal_scale) : scale(normal_scale) {}  // NOLINT: a scale alone is a normal's
  static RowStart uniform(double bound) {
    RowStart start(bound);
    start.is_uniform = true;
    return start;
  }
};

// Rows [first_row, V) of table [V, D] become that. A GPU's logarithms and cosines may round the f64
// that normal numbers are made in otherwise than the host's.
template <class T>  // float; bf16 or f16: rounded to the nearest
void random_rows(const Context& ctx, View<T, 2> table, std::int64_t first_row, std::uint64_t seed,
                 RowStart start);

// One such row on the host, as row `index` of any table has it.
void random_row(std::uint64_t seed, std::int64_t index, RowStart start, std::int64_t width,
                float* row);

}  // namespace turbogr::ops
