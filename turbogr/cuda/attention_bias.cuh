// The bias b_ij = position[j - i] + time[bucket(tq_i - tk_j)] on the registers of a tile of scores.
// Rows are queries in the forward kernel and keys in the backward one. In a row of sorted times the
// bucket is monotone: where a tile, or sixteen of its columns, pass through few buckets, each
// boundary costs one compare an element; next to the diagonal, where there are many, each element
// is looked up.
#pragma once

#include "turbogr/cuda/attention_tile.cuh"
#include "turbogr/cuda/time_buckets.cuh"

namespace turbogr::cuda {

// The part of the bias inputs that one tile of kQueries x kKeys needs, brought to shared memory
// with the tile's operands: position weights and the times of the columns.
template <int kQueries, int kKeys, int kColumns>
struct BiasStage {
  alignas(16) float position[kQueries + kKeys + 8];
  alignas(16) std::uint32_t times[kColumns];

  // First entry of the position table that is brought, a multiple of 4.
  static __device__ __forceinline__ int start(const BiasArgs& bias, int first_query,
                                              int first_key) {
    return max(0, bias.position_length + first_key - first_query - kQueries) & ~3;
  }
  static __device__ __forceinline__ int position_bytes(const BiasArgs& bias, int first_query,
                                                       int first_key) {
    if (bias.position == nullptr) return 0;
    const int end =
        min(bias.position_length, bias.position_length - 1 + first_key + kKeys - first_query);
    return (end - start(bias, first_query, first_key) + 3) / 4 * 16;
  }
  static __device__ __forceinline__ int bytes(const BiasArgs& bias, int first_query,
                                              int first_key) {
    return position_bytes(bias, first_query, first_key) + (bias.time != nullptr ? kColumns * 4 : 0);
  }
  // One thread; `columns` are the padded times of the sequence, from the tile's first column.
  __device__ __forceinline__ void load(const BiasArgs& bias, int first_query, int first_key,
                                       const std::uint32_t* columns, std::uint64_t* barrier) {
    if (bias.position != nullptr) {
      load_bytes(position,
                 bias.position - (bias.position_length - 1) + start(bias, first_query, first_key),
                 position_bytes(bias, first_query, first_key), barrier);
    }
    if (bias.time != nullptr) load_bytes(times, columns, kColumns * 4, barrier);
  }
  // Where offset 0 would be. Offsets that are not there belong to masked elements; they read
  // whatever lies in shared memory beside.
  __device__ __forceinline__ const float* origin(const BiasArgs& bias, int first_query,
                                                 int first_key) const {
    return position + (bias.position_length - 1 - start(bias, first_query, first_key));
  }
};

// Fills the tile with position weights, from `load(offset)` with offset = key - query. `row` is the
// thread's first row in the sequence, `first_column` the tile's first column.
template <bool kRowsAreQueries, int N, class Load>
__device__ __forceinline__ void fill_position(float (&scores)[N / 2], int row, int first_column,
                                              Load load) {
  constexpr int kSign = kRowsAreQueries ? 1 : -1;
  const int base = kSign * (first_column + 2 * static_cast<int>(threadIdx.x % 4) - row);
  // Element (row + 8, column + 8) has the weight of (row, column): half the loads serve both rows.
  scores[2] = load(base - kSign * 8);
  scores[3] = load(base - kSign * 7);
  TGR_UNROLL
  for (int group = 0; group < N / 8; ++group) {
    const float even = load(base + kSign * 8 * group);
    const float odd = load(base + kSign * (8 * group + 1));
    scores[4 * group] = even;
    scores[4 * group + 1] = odd;
    if (group + 1 < N / 8) {
      scores[4 * group + 6] = even;
      scores[4 * group + 7] = odd;
    }
  }
}

__device__ __forceinline__ int padded_row(const AttentionItem& item) {
  return (item.first_row / kPaddedRows + item.sequence) * kPaddedRows;
}

// Times of the thread's two rows, the same for all tiles of an item.
struct RowTimes {
  std::uint32_t rows[2] = {0, 0};
  bool usable = true;

  __device__ __forceinline__ RowTimes(const BiasArgs& bias, const std::uint32_t* times,
                                      const AttentionItem& item, int row) {
    if (bias.time == nullptr) return;
    usable = __ldg(bias.usable + item.sequence) != 0;
    times += padded_row(item);
    rows[0] = __ldg(times + min(row, item.length - 1));
    rows[1] = __ldg(times + min(row + 8, item.length - 1));
  }
};

// Times of the rows and columns of one tile, relative to the sequence's first key.
template <bool kRowsAreQueries>
struct TileTimes {
  std::uint32_t rows[2];
  const std::uint32_t* columns;  // of the tile's first column
  int last;                      // the last column that is in the sequence

  __device__ __forceinline__ TileTimes(const RowTimes& row_times, const std::uint32_t* column_times,
                                       int last_column)
      : rows{row_times.rows[0], row_times.rows[1]}, columns(column_times), last(last_column) {}
  __device__ __forceinline__ std::uint32_t gap(int half, std::uint32_t column_time) const {
    return kRowsAreQueries ? rows[half] - column_time : column_time - rows[half];
  }
  // The column time from which on (rows are keys) or below which (queries) the gap is `least` or
  // more.
  __device__ __forceinline__ std::uint32_t boundary(int half, std::uint32_t least) const {
    if (kRowsAreQueries) return rows[half] >= least ? rows[half] - least + 1 : 0;
    return least <= ~rows[half] ? rows[half] + least : ~0u;
  }
  __device__ __forceinline__ bool beyond(std::uint32_t column_time, std::uint32_t boundary) const {
    return kRowsAreQueries ? column_time < boundary : column_time >= boundary;
  }
  // The bucket at a column; an element that lies in the future, masked, counts as no gap.
  __device__ __forceinline__ int bucket(const ShortGapTables& tables, int half, int column) const {
    const std::uint32_t time = columns[min(column, last)];
    const std::uint32_t later = kRowsAreQueries ? rows[half] : time;
    const std::uint32_t earlier = kRowsAreQueries ? time : rows[half];
    return tables.bucket(later > earlier ? later - earlier : 0);
  }
  // Two neighbouring columns of this thread in a group of eight.
  __device__ __forceinline__ uint2 pair(int group) const {
    return *reinterpret_cast<const uint2*>(columns + 8 * group + 2 * (threadIdx.x % 4));
  }
};

// The buckets that each of the thread's two rows passes through in a range of columns.
struct BucketRange {
  int low[2];
  int high[2];

  // Whether a row of the warp passes through more than `count` boundaries.
  __device__ __forceinline__ bool exceeds(int count) const {
    return __any_sync(~0u, max(high[0] - low[0], high[1] - low[1]) > count);
  }
};

// More boundaries than this in one range are not worth a compare each.
inline constexpr int kMaxBoundaries = 3;

template <bool kRowsAreQueries, int N>
__device__ __forceinline__ BucketRange tile_range(const TileTimes<kRowsAreQueries>& times,
                                                  const ShortGapTables& tables) {
  // Each lane of four finds one of the four buckets.
  const bool want_last = ((threadIdx.x & 1) != 0) != kRowsAreQueries;
  const int half = threadIdx.x / 2 % 2;
  const int bucket = times.bucket(tables, half, want_last ? N - 1 : 0);
  const int quad = threadIdx.x & 28;
  return {{__shfl_sync(~0u, bucket, quad), __shfl_sync(~0u, bucket, quad + 2)},
          {__shfl_sync(~0u, bucket, quad + 1), __shfl_sync(~0u, bucket, quad + 3)}};
}

// Adds the time weights to columns 8 * kGroup up to 8 * (kGroup + kGroups), which pass through
// few boundaries: what changes at a boundary is added to the elements beyond it.
template <bool kRowsAreQueries, int kGroup, int kGroups, int R>
__device__ __forceinline__ void add_few_times(float (&scores)[R],
                                              const TileTimes<kRowsAreQueries>& times,
                                              const ShortGapTables& tables,
                                              const BucketRange& range) {
  float weight[2] = {tables.weight[range.low[0]], tables.weight[range.low[1]]};
  TGR_UNROLL
  for (int i = 4 * kGroup; i < 4 * (kGroup + kGroups); ++i) scores[i] += weight[i / 2 % 2];
#pragma unroll 1
  for (int step = 1; step <= kMaxBoundaries && range.exceeds(step - 1); ++step) {
    std::uint32_t start[2];
    float change[2];
    TGR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int bucket = range.low[half] + step;
      const float next = tables.weight[bucket];
      start[half] = times.boundary(half, tables.first_gap[bucket]);
      change[half] = next - weight[half];
      weight[half] = next;
    }
    TGR_UNROLL
    for (int group = kGroup; group < kGroup + kGroups; ++group) {
      const uint2 pair = times.pair(group);
      TGR_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (times.beyond(pair.x, start[half])) scores[4 * group + 2 * half] += change[half];
        if (times.beyond(pair.y, start[half])) scores[4 * group + 2 * half + 1] += change[half];
      }
    }
  }
}

template <bool kRowsAreQueries, int N>
__device__ __forceinline__ void add_time_bias(float (&scores)[N / 2], const BiasArgs& bias,
                                              const ShortGapTables& tables, const RowTimes& rows,
                                              const std::uint32_t* column_times,
                                              const AttentionItem& item, int row,
                                              int first_column) {
  if (!rows.usable) {
    const std::int64_t* exact_rows =
        (kRowsAreQueries ? bias.exact_query_times : bias.exact_key_times) + item.first_row;
    const std::int64_t* exact_columns =
        (kRowsAreQueries ? bias.exact_key_times : bias.exact_query_times) + item.first_row;
    const int end = item.length - 1;
    TGR_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      const int column = first_column + i / 4 * 8 + i % 2 + 2 * (threadIdx.x % 4);
      const int bucket = any_gap_bucket(__ldg(exact_rows + min(row + i / 2 % 2 * 8, end)),
                                        __ldg(exact_columns + min(column, end)));
      scores[i] += bias.weight_scale * __ldg(bias.time + bucket);
    }
    return;
  }
  const TileTimes<kRowsAreQueries> times(rows, column_times, item.length - 1 - first_column);
  const BucketRange range = tile_range<kRowsAreQueries, N>(times, tables);
  if (!range.exceeds(kMaxBoundaries)) {
    add_few_times<kRowsAreQueries, 0, N / 8>(scores, times, tables, range);
  } else {
    TGR_UNROLL
    for (int group = 0; group < N / 8; ++group) {
      const uint2 pair = times.pair(group);
      TGR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int bucket = tables.bucket(times.gap(i / 2, i % 2 == 0 ? pair.x : pair.y));
        scores[4 * group + i] += tables.weight[bucket];
      }
    }
  }
}

// Fills a tile of scores with the bias over alpha, for the products to be added to. `position` is
// where offset 0 would be; with kClamp it is the table itself, which ends.
template <bool kRowsAreQueries, int N, bool kClamp>
__device__ __forceinline__ void fill_bias(float (&scores)[N / 2], const BiasArgs& bias,
                                          const ShortGapTables& tables, const float* position,
                                          const RowTimes& rows, const std::uint32_t* column_times,
                                          const AttentionItem& item, int row, int first_column) {
  if (bias.position != nullptr) {
    fill_position<kRowsAreQueries, N>(scores, row, first_column, [&](int offset) {
      if (kClamp) offset = min(max(offset, 1 - bias.position_length), 0);
      return bias.weight_scale * position[offset];
    });
  } else {
    TGR_UNROLL
    for (int i = 0; i < N / 2; ++i) scores[i] = 0;
  }
  if (bias.time != nullptr) {
    add_time_bias<kRowsAreQueries, N>(scores, bias, tables, rows, column_times, item, row,
                                      first_column);
  }
}

}  // namespace turbogr::cuda
