// A 64 x 64 tile of the position or time map, made by a warpgroup in the registers of the left
// operand of a product. Rows are queries forward and keys backward, columns the other. A position
// tile is a piece of the table along its diagonals. In a row of sorted times the bucket is
// monotone: sixteen columns that stay in the row's bucket cost one compare, others are looked up
// one by one.
#pragma once

#include <cuda_bf16.h>

#include "turbogr/ops/attention/hopper/fuxi_args.cuh"

namespace turbogr::cuda {

using MapTile = std::uint32_t[16];  // two bf16 each; 4 step up to 4 step + 3 are columns 16 step

// The weights of a position tile, loaded a tile ahead of their use.
struct PositionAhead {
  // Element (row + 8, column + 8) has the weight of (row, column): nine pairs serve both rows.
  std::uint32_t pairs[9];

  // `row` is the thread's first row in the sequence, `column` the tile's first column.
  template <bool kBackward>
  __device__ __forceinline__ void load(const FuxiMaps& maps, int row, int column) {
    constexpr int kSign = kBackward ? -1 : 1;
    const std::uint32_t* from =
        maps.pairs + kSign * (column + 2 * static_cast<int>(threadIdx.x % 4) - row);
    TGR_UNROLL
    for (int j = 0; j < 9; ++j) {
      // Volatile: the compiler would move the load to its use.
      asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(pairs[j]) : "l"(from + kSign * 8 * (j - 1)));
    }
  }
  __device__ __forceinline__ void make(MapTile& tile) const {
    TGR_UNROLL
    for (int step = 0; step < 4; ++step) {
      tile[4 * step] = tile[4 * step + 3] = pairs[2 * step + 1];
      tile[4 * step + 1] = pairs[2 * step];
      tile[4 * step + 2] = pairs[2 * step + 2];
    }
  }
};

// The thread's two rows of the time map in one item, where gaps only grow from tile to tile.
struct TimeRows {
  std::uint32_t time[2];
  std::uint32_t high[2];    // where the rows' present buckets end; 0: none yet
  std::uint32_t weight[2];  // of the present bucket, twice

  template <bool kBackward>
  __device__ __forceinline__ void start(const std::uint32_t* times, int row) {
    TGR_UNROLL
    for (int half = 0; half < 2; ++half) {
      // So that gaps come out one too large, as the table wants them.
      time[half] = times[row + 8 * half] + (kBackward ? ~0u : 1u);
      high[half] = 0;
    }
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

// Looks 32 columns up. kFuture: some lie in the future and have no gap; any weight will do.
template <bool kBackward, bool kFuture>
__device__ __forceinline__ void look_up_half(std::uint32_t* half_tile, const GapTable& table,
                                             const TimeRows& rows, const std::uint32_t* times) {
  const int first = 2 * static_cast<int>(threadIdx.x % 4);
  TGR_UNROLL
  for (int j = 0; j < 4; ++j) {
    const auto pair = *reinterpret_cast<const uint2*>(times + 8 * j + first);
    TGR_UNROLL
    for (int half = 0; half < 2; ++half) {
      std::uint32_t gap0 = rows.gap<kBackward>(half, pair.x);
      std::uint32_t gap1 = rows.gap<kBackward>(half, pair.y);
      if (kFuture) {
        gap0 = max(gap0, 1u);
        gap1 = max(gap1, 1u);
      }
      half_tile[2 * j + half] = look_up_pair(table, gap0, gap1);
    }
  }
}

// `times`: of the tile's columns, in shared memory. `diagonal`: some elements lie in the future.
template <bool kBackward>
__device__ __forceinline__ void make_time_tile(MapTile& tile, const GapTable& table, TimeRows& rows,
                                               const std::uint32_t* times, bool diagonal) {
  if (diagonal) {
    look_up_half<kBackward, true>(tile, table, rows, times);
    look_up_half<kBackward, true>(tile + 8, table, rows, times + 32);
    return;
  }
  // The columns furthest from the rows in each half of the tile.
  const std::uint32_t far[2] = {times[kBackward ? 31 : 0], times[kBackward ? 63 : 32]};
  const auto inside = [&](int part) {
    return __all_sync(~0u, rows.gap<kBackward>(0, far[part]) < rows.high[0] &&
                               rows.gap<kBackward>(1, far[part]) < rows.high[1]);
  };
  if (inside(kBackward ? 1 : 0)) {
    TGR_UNROLL
    for (int i = 0; i < 16; ++i) tile[i] = rows.weight[i % 2];
    return;
  }
  TGR_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int part = kBackward ? i : 1 - i;  // so that gaps grow
    if (inside(part)) {
      TGR_UNROLL
      for (int j = 0; j < 8; ++j) tile[8 * part + j] = rows.weight[j % 2];
      continue;
    }
    look_up_half<kBackward, false>(tile + 8 * part, table, rows, times + 32 * part);
    TGR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t gap = rows.gap<kBackward>(half, far[part]);
      const int bin = GapTable::bin_of(gap);
      const uint2 found = table.bins[bin];
      const bool next = gap >= found.x;
      rows.high[half] = next ? table.after[bin] : found.x;
      rows.weight[half] = __byte_perm(found.y, 0, next ? 0x3232 : 0x1010);
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
