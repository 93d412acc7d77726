#include <algorithm>
#include <cmath>

#include "turbogr/ops/rows/half_rows_kernels.h"
#include "turbogr/ops/rows/row_simd.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kGrain = 64;

}  // namespace

void to_half_rows(Cpu cpu, Rows<const float> table, View<const std::int64_t, 1> ids, bool in_place,
                  const HalfRowsOut& out) {
  parallel_ranges(cpu.pool, ids.shape[0], kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* row = table.row(ids(i));
      const std::int64_t to = in_place ? ids(i) : i;
      const float largest = row_kernels<float>(cpu.simd).max_magnitude(row, table.cols);
      // A row of zeros, or so small that it has no inverse, is zero.
      const bool zero = !std::isfinite(1.0f / largest);
      out.scale(to) = zero ? 0.0f : largest;
      row_kernels<f16>(cpu.simd).narrow(row, zero ? 0.0f : 1.0f / largest, table.cols,
                                        out.values.row(to));
    }
  });
}

void copy_half_rows(Cpu cpu, const HalfRows& table, View<const std::int64_t, 1> ids,
                    const HalfRowsOut& out) {
  parallel_ranges(cpu.pool, ids.shape[0], kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::copy_n(table.values.row(ids(i)), table.values.cols, out.values.row(i));
      out.scale(i) = table.scale(ids(i));
    }
  });
}

}  // namespace turbogr::ops::kernels
