// A 64 x 64 tile of the position or time map, made by a warpgroup in the registers of the left
// operand of a product. Rows are queries forward and keys backward, columns the other. A position
// tile is a piece of the table along its diagonals. In a row of sorted times the bucket is
// monotone: sixteen columns that stay in the row's bucket cost one compare, others are looked up
// one by one.
#pragma once

#include <cuda_bf16.h>

#include "turbogr/cuda/fuxi_args.cuh"

namespace turbogr::cuda {

using MapTile = std::uint32_t[16];  // two bf16 each; 4 step up to 4 step + 3 are columns 16 step

// `row` is the thread's first row in the sequence, `column` the tile's first column.
template <bool kBackward>
__device__ __forceinline__ void make_position_tile(MapTile& tile, const FuxiMaps& maps, int row,
                                                   int column) {
  constexpr int kSign = kBackward ? -1 : 1;
  const int base = kSign * (column + 2 * static_cast<int>(threadIdx.x % 4) - row);
  const auto weight = [&](int offset) {
    // What lies outside belongs to masked elements.
    return __ldg(maps.position + min(max(offset, 1 - maps.position_length), 0));
  };
  // Element (row + 8, column + 8) has the weight of (row, column).
  std::uint32_t pairs[9];
  TGR_UNROLL
  for (int j = 0; j < 9; ++j) {
    pairs[j] = pack_bf16(weight(base + kSign * 8 * (j - 1)), weight(base + kSign * (8 * j - 7)));
  }
  TGR_UNROLL
  for (int step = 0; step < 4; ++step) {
    tile[4 * step] = tile[4 * step + 3] = pairs[2 * step + 1];
    tile[4 * step + 1] = pairs[2 * step];
    tile[4 * step + 2] = pairs[2 * step + 2];
  }
}

// The thread's two rows of the time map, from item to item. Within an item, gaps only grow from
// tile to tile.
struct TimeRows {
  bool usable;
  std::uint32_t time[2];
  std::uint32_t high[2];    // where the rows' present buckets end; 0: none yet
  std::uint32_t weight[2];  // of the present bucket, twice

  template <bool kBackward>
  __device__ __forceinline__ void start(const FuxiMaps& maps, const FuxiItem& item, int row) {
    high[0] = high[1] = 0;
    usable = true;
    if (maps.time == nullptr) return;
    usable = __ldg(maps.usable + item.sequence) != 0;
    const std::uint32_t* times =
        (kBackward ? maps.key_times : maps.query_times) + fuxi_padded_row(item) + row;
    time[0] = __ldg(times);
    time[1] = __ldg(times + 8);
  }
  template <bool kBackward>
  __device__ __forceinline__ std::uint32_t gap(int half, std::uint32_t column_time) const {
    return kBackward ? column_time - time[half] : time[half] - column_time;
  }
};

// The weights of two neighbouring elements.
__device__ __forceinline__ std::uint32_t look_up_pair(const GapTable& table, std::uint32_t gap0,
                                                      std::uint32_t gap1) {
  const uint2 bin0 = table.bins[GapTable::bin_of(gap0)];
  const uint2 bin1 = table.bins[GapTable::bin_of(gap1)];
  return __byte_perm(bin0.y, bin1.y,
                     (gap0 >= bin0.x ? 0x32 : 0x10) | (gap1 >= bin1.x ? 0x7600 : 0x5400));
}

// `times`: of the tile's columns, in shared memory. `diagonal`: some elements lie in the future.
template <bool kBackward>
__device__ __forceinline__ void make_time_tile(MapTile& tile, const GapTable& table, TimeRows& rows,
                                               const std::uint32_t* times, bool diagonal) {
  const int first = 2 * static_cast<int>(threadIdx.x % 4);
  std::uint32_t far[4];  // of sixteen columns, the one furthest from the rows
  TGR_UNROLL
  for (int i = 0; i < 4; ++i) far[i] = times[16 * i + (kBackward ? 15 : 0)];
  const auto inside = [&](int step) {
    return __all_sync(~0u, rows.gap<kBackward>(0, far[step]) < rows.high[0] &&
                               rows.gap<kBackward>(1, far[step]) < rows.high[1]);
  };
  if (!diagonal && inside(kBackward ? 3 : 0)) {
    TGR_UNROLL
    for (int i = 0; i < 16; ++i) tile[i] = rows.weight[i % 2];
    return;
  }
  TGR_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int step = kBackward ? i : 3 - i;  // so that gaps grow
    if (!diagonal && inside(step)) {
      tile[4 * step] = tile[4 * step + 2] = rows.weight[0];
      tile[4 * step + 1] = tile[4 * step + 3] = rows.weight[1];
      continue;
    }
    TGR_UNROLL
    for (int part = 0; part < 2; ++part) {
      const auto pair = *reinterpret_cast<const uint2*>(times + 16 * step + 8 * part + first);
      TGR_UNROLL
      for (int half = 0; half < 2; ++half) {
        tile[4 * step + 2 * part + half] = look_up_pair(table, rows.gap<kBackward>(half, pair.x),
                                                        rows.gap<kBackward>(half, pair.y));
      }
    }
    if (!diagonal) {
      TGR_UNROLL
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t gap = rows.gap<kBackward>(half, far[step]);
        const int bin = GapTable::bin_of(gap);
        const uint2 found = table.bins[bin];
        const bool next = gap >= found.x;
        rows.high[half] = next ? table.after[bin] : found.x;
        rows.weight[half] = __byte_perm(found.y, 0, next ? 0x3232 : 0x1010);
      }
    }
  }
}

// The same for times in any order.
template <bool kBackward>
__device__ __forceinline__ void make_any_time_tile(MapTile& tile, const FuxiMaps& maps,
                                                   const FuxiItem& item, int row, int column) {
  const std::int64_t* row_times =
      (kBackward ? maps.exact_key_times : maps.exact_query_times) + item.first_row;
  const std::int64_t* column_times =
      (kBackward ? maps.exact_query_times : maps.exact_key_times) + item.first_row;
  const int end = item.length - 1;
  TGR_UNROLL
  for (int i = 0; i < 16; ++i) {
    const std::int64_t time = __ldg(row_times + min(row + i % 2 * 8, end));
    const int at = column + i / 4 * 16 + i / 2 % 2 * 8 + 2 * static_cast<int>(threadIdx.x % 4);
    const int bucket0 = any_gap_bucket(time, __ldg(column_times + min(at, end)));
    const int bucket1 = any_gap_bucket(time, __ldg(column_times + min(at + 1, end)));
    tile[i] = pack_bf16(__ldg(maps.time + bucket0), __ldg(maps.time + bucket1));
  }
}

// Clears what a row does not see. `diagonal`: the column of the thread's first row itself; `end`:
// the first column past the sequence.
template <bool kBackward>
__device__ __forceinline__ void mask_tile(MapTile& tile, int diagonal, int end) {
  const int first = 2 * static_cast<int>(threadIdx.x % 4);
  TGR_UNROLL
  for (int i = 0; i < 16; ++i) {
    const int column = first + i / 4 * 16 + i / 2 % 2 * 8;
    const int row = diagonal + i % 2 * 8;
    const auto seen = [&](int c) { return kBackward ? c >= row && c < end : c <= row; };
    tile[i] &= (seen(column) ? 0xffffu : 0u) | (seen(column + 1) ? 0xffff0000u : 0u);
  }
}

}  // namespace turbogr::cuda
