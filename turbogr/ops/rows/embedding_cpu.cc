#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/ops/rows/embedding_kernels.h"
#include "turbogr/ops/rows/index_range.h"
#include "turbogr/ops/rows/radix_sort.h"
#include "turbogr/ops/rows/row_simd.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kSortedGrain = 1 << 14;

template <class Key>
std::int64_t dedup_with(Cpu cpu, View<const std::int64_t, 1> ids, int key_bits,
                        const DedupOutput& output) {
  const std::int64_t count = ids.shape[0];
  WorkspaceScope scratch(cpu.workspace);
  Keyed<Key>* items = scratch.take<Keyed<Key>>(count).data;
  Keyed<Key>* spare = scratch.take<Keyed<Key>>(count).data;
  const auto histogram = scratch.take<std::uint32_t>(radix_histogram_size(count));
  parallel_ranges(cpu.pool, count, kSortedGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      items[i] = {static_cast<Key>(ids(i)), static_cast<std::uint32_t>(i)};
    }
  });
  const Keyed<Key>* sorted = radix_sort(cpu.pool, items, spare, count, key_bits, histogram);
  // How many groups start in each piece, then, after a prefix sum, before each piece. The
  // sort is done with its histogram, which has room: 2^31 / kSortedGrain is less than 64 x 2^12
  // bins.
  const auto starts = [&](std::int64_t i) { return i == 0 || sorted[i].key != sorted[i - 1].key; };
  std::uint32_t* before = histogram.data;
  parallel_ranges(cpu.pool, count, kSortedGrain, [&](std::int64_t begin, std::int64_t end, int) {
    std::uint32_t groups = 0;
    for (std::int64_t i = begin; i < end; ++i) groups += starts(i) ? 1u : 0u;
    before[begin / kSortedGrain] = groups;
  });
  std::uint32_t num_unique = 0;
  for (std::int64_t piece = 0; piece * kSortedGrain < count; ++piece) {
    num_unique += std::exchange(before[piece], num_unique);
  }
  parallel_ranges(cpu.pool, count, kSortedGrain, [&](std::int64_t begin, std::int64_t end, int) {
    std::int64_t group = static_cast<std::int64_t>(before[begin / kSortedGrain]) - 1;
    for (std::int64_t i = begin; i < end; ++i) {
      if (starts(i)) {
        ++group;
        output.unique(group) = static_cast<std::int64_t>(sorted[i].key);
        output.offsets(group) = i;
      }
      output.positions(i) = static_cast<std::int32_t>(sorted[i].position);
      output.inverse(sorted[i].position) = static_cast<std::int32_t>(group);
    }
  });
  output.offsets(num_unique) = count;
  return num_unique;
}

}  // namespace

std::int64_t dedup_ids(Cpu cpu, View<const std::int64_t, 1> ids, const DedupOutput& output) {
  const std::int64_t count = ids.shape[0];
  const std::int64_t bad =
      first_out_of_range(cpu.pool, ids.data, count, std::numeric_limits<std::int64_t>::max());
  TGR_CHECK(bad < 0, "dedup_ids: id ", ids(bad < 0 ? 0 : bad), " at position ", bad,
            "; ids must be at least 0 and below 2^63 - 1");
  std::atomic<std::uint64_t> all_bits{0};
  parallel_ranges(cpu.pool, count, kSortedGrain, [&](std::int64_t begin, std::int64_t end, int) {
    std::uint64_t bits = 0;
    for (std::int64_t i = begin; i < end; ++i) bits |= static_cast<std::uint64_t>(ids(i));
    all_bits.fetch_or(bits, std::memory_order_relaxed);
  });
  const auto key_bits = static_cast<int>(std::bit_width(all_bits.load()));
  return key_bits <= 32 ? dedup_with<std::uint32_t>(cpu, ids, key_bits, output)
                        : dedup_with<std::uint64_t>(cpu, ids, key_bits, output);
}

template <class T, class Out, class Index>
void gather_rows(Cpu cpu, Rows<const T> table, View<const Index, 1> ids, Rows<Out> out) {
  const std::int64_t count = ids.shape[0];
  const std::int64_t bad = first_out_of_range(cpu.pool, ids.data, count, table.rows);
  TGR_CHECK(bad < 0, "gather_rows: id ", ids(bad < 0 ? 0 : bad), " at position ", bad,
            " for a table of ", table.rows, " rows; ids must be at least 0 and below that");
  constexpr std::int64_t kAhead = 4;  // rows: far enough to hide memory, near enough to stay in L1
  const auto bytes = static_cast<std::size_t>(table.cols) * sizeof(T);
  parallel_ranges(cpu.pool, count, 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) {
        const auto* ahead = reinterpret_cast<const std::byte*>(table.row(ids(i + kAhead)));
        for (std::size_t b = 0; b < bytes; b += 64) __builtin_prefetch(ahead + b);
      }
      if constexpr (std::is_same_v<T, Out>) {
        std::memcpy(static_cast<void*>(out.row(i)), table.row(ids(i)), bytes);
      } else if constexpr (std::is_same_v<Out, float>) {
        row_kernels<T>(cpu.simd).widen(table.row(ids(i)), 1.0f, table.cols, out.row(i));
      } else if constexpr (std::is_same_v<T, f16>) {
        const f16* row = table.row(ids(i));
        for (std::int64_t c = 0; c < table.cols; ++c) out(i, c) = convert<Out>(row[c]);
      } else {
        row_kernels<Out>(cpu.simd).narrow(table.row(ids(i)), 1.0f, table.cols, out.row(i));
      }
    }
  });
}

namespace {

// Columns [begin, begin + cols) of one group into one row of sums.
template <class T>
void sum_group(SimdLevel simd, Rows<const T> drows, const std::int32_t* positions,
               std::int64_t count, std::int64_t begin, std::int64_t cols, Accum<T>* sum) {
  if constexpr (std::is_same_v<T, double>) {
    for (std::int64_t j = 0; j < count; ++j) {
      const double* row = drows.row(positions[j]) + begin;
      for (std::int64_t c = 0; c < cols; ++c) sum[begin + c] += row[c];
    }
  } else {
    row_kernels<T>(simd).add(drows.data + begin, drows.stride, positions, nullptr, count, cols,
                             sum + begin);
  }
}

}  // namespace

template <class T>
void sum_groups(Cpu cpu, Rows<const T> drows, const IdGroups& groups, bool scatter,
                Rows<Accum<T>> sums) {
  // Work is cut by positions, not by groups: a piece owns the groups that start in it. A group so
  // large that it would keep one thread busy alone is left to the second pass, which cuts it by
  // columns; it is longer than a piece, so it is the last one of the piece it starts in.
  constexpr std::int64_t kPiece = 512;
  constexpr std::int64_t kLarge = 2048;
  constexpr std::int64_t kStrip = 128;
  constexpr std::int64_t kAhead = 4;
  const std::int64_t width = drows.cols;
  const auto bytes = static_cast<std::size_t>(width) * sizeof(T);
  const std::int64_t* first = groups.offsets.data;
  const std::int64_t* last = first + groups.unique.shape[0];
  const auto start_of = [&](std::int64_t piece) {
    return std::lower_bound(first, last, piece * kPiece);
  };
  const auto sum_columns = [&](const std::int64_t* group, std::int64_t begin, std::int64_t cols) {
    const std::int64_t u = group - first;
    Accum<T>* sum = sums.row(scatter ? groups.unique(u) : u);
    if (!scatter) std::fill(sum + begin, sum + begin + cols, Accum<T>{0});
    sum_group<T>(cpu.simd, drows, groups.positions.data + group[0], group[1] - group[0], begin,
                 cols, sum);
  };
  const std::int64_t pieces = (drows.rows + kPiece - 1) / kPiece;
  parallel_for(cpu.pool, pieces, [&](std::int64_t piece, int) {
    const std::int64_t* end = start_of(piece + 1);
    for (const std::int64_t* group = start_of(piece); group < end; ++group) {
      if (group[1] - group[0] >= kLarge) continue;
      // Most groups are short: what is worth fetching ahead lies in the groups that follow.
      const std::int64_t ahead = std::min(group[1] + kAhead, drows.rows);
      for (std::int64_t j = std::min(group[0] + kAhead, ahead); j < ahead; ++j) {
        const auto* row = reinterpret_cast<const std::byte*>(drows.row(groups.positions(j)));
        for (std::size_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b);
      }
      sum_columns(group, 0, width);
    }
  });
  const std::int64_t strips = (width + kStrip - 1) / kStrip;
  parallel_for(cpu.pool, pieces * strips, [&](std::int64_t item, int) {
    const std::int64_t piece = item / strips;
    const std::int64_t* group = start_of(piece + 1) - 1;
    if (group < first || group[0] < piece * kPiece || group[1] - group[0] < kLarge) return;
    const std::int64_t begin = item % strips * kStrip;
    sum_columns(group, begin, std::min(kStrip, width - begin));
  });
}

#define TGR_INSTANTIATE(T) \
  template void sum_groups<T>(Cpu, Rows<const T>, const IdGroups&, bool, Rows<Accum<T>>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

#define TGR_INSTANTIATE(T, Out)                                                                    \
  template void gather_rows<T, Out, std::int64_t>(Cpu, Rows<const T>, View<const std::int64_t, 1>, \
                                                  Rows<Out>);                                      \
  template void gather_rows<T, Out, std::int32_t>(Cpu, Rows<const T>, View<const std::int32_t, 1>, \
                                                  Rows<Out>);
TGR_INSTANTIATE(double, double)
TGR_INSTANTIATE(float, float)
TGR_INSTANTIATE(bf16, bf16)
TGR_INSTANTIATE(float, bf16)
TGR_INSTANTIATE(bf16, float)
TGR_INSTANTIATE(f16, float)
TGR_INSTANTIATE(f16, bf16)
#undef TGR_INSTANTIATE

template <class T>
void place_rows(Cpu cpu, Rows<const T> rows, View<const std::int32_t, 1> places, Rows<T> out) {
  parallel_ranges(cpu.pool, rows.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::copy_n(rows.row(i), rows.cols, out.row(places(i)));
    }
  });
}

template void place_rows<float>(Cpu, Rows<const float>, View<const std::int32_t, 1>, Rows<float>);
template void place_rows<bf16>(Cpu, Rows<const bf16>, View<const std::int32_t, 1>, Rows<bf16>);

}  // namespace turbogr::ops::kernels
