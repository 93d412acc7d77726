#include <algorithm>
#include <type_traits>

#include "turbogr/core/dtype.h"
#include "turbogr/ops/rows/row_simd.h"
#include "turbogr/ops/rows/weighted_rows_kernels.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kStrip = 128;  // columns that are summed together

// Columns [begin, begin + cols) of sum p.
template <class T, class Out>
void sum_columns(SimdLevel simd, Rows<const T> rows, const RowPicks& picks, std::int64_t p,
                 std::int64_t begin, std::int64_t cols, Rows<Out> out) {
  const std::int64_t first = picks.offsets(p), count = picks.offsets(p + 1) - first;
  Out* to = out.row(p) + begin;
  if (std::is_same_v<T, Out> && count == 1 && picks.weights(first) == 1) {
    const T* row = rows.row(picks.index(first)) + begin;
    for (std::int64_t c = 0; c < cols; ++c) to[c] = convert<Out>(convert<float>(row[c]));
    return;
  }
  float sums[kStrip] = {};
  row_kernels<T>(simd).add(rows.data + begin, rows.stride, picks.index.data + first,
                           picks.weights.data + first, count, cols, sums);
  for (std::int64_t c = 0; c < cols; ++c) to[c] = convert<Out>(sums[c]);
}

}  // namespace

template <class T, class Out>
void sum_weighted_rows(Cpu cpu, Rows<const T> rows, const RowPicks& picks, Rows<Out> out) {
  // A sum of so many picks would keep one thread busy alone: it is shared out by columns.
  constexpr std::int64_t kLarge = 4096;
  const std::int64_t strips = (rows.cols + kStrip - 1) / kStrip;
  const auto sum_strip = [&](std::int64_t p, std::int64_t strip) {
    const std::int64_t begin = strip * kStrip;
    sum_columns<T, Out>(cpu.simd, rows, picks, p, begin, std::min(kStrip, rows.cols - begin), out);
  };
  const auto large = [&](std::int64_t p) {
    return picks.offsets(p + 1) - picks.offsets(p) >= kLarge;
  };
  parallel_ranges(cpu.pool, picks.sums(), 32, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p) {
      if (large(p)) continue;
      for (std::int64_t strip = 0; strip < strips; ++strip) sum_strip(p, strip);
    }
  });
  if (picks.index.shape[0] < kLarge) return;
  for (std::int64_t p = 0; p < picks.sums(); ++p) {
    if (!large(p)) continue;
    parallel_for(cpu.pool, strips, [&](std::int64_t strip, int) { sum_strip(p, strip); });
  }
}

template void sum_weighted_rows<float, float>(Cpu, Rows<const float>, const RowPicks&, Rows<float>);
template void sum_weighted_rows<bf16, bf16>(Cpu, Rows<const bf16>, const RowPicks&, Rows<bf16>);
template void sum_weighted_rows<bf16, float>(Cpu, Rows<const bf16>, const RowPicks&, Rows<float>);

}  // namespace turbogr::ops::kernels
