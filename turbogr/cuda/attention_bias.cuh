// The bias b_ij = position[j - i] + time[bucket(tq_i - tk_j)] on the registers of a tile of scores,
// and the gradients of both tables from a tile of score gradients. Rows are queries in the forward
// kernel and keys in the backward one. In a row of sorted times the bucket is monotone, so that
// sixteen columns hold few of them: their first and last bucket are found, then one compare an
// element and bucket between.
#pragma once

#include "turbogr/cuda/attention_tile.cuh"
#include "turbogr/cuda/time_buckets.cuh"

namespace turbogr::cuda {

// Adds half the position weights to half the scaled scores. `row` is the thread's first row in the
// sequence, `first_column` the tile's. Offsets that no table holds belong to masked elements.
template <bool kRowsAreQueries, int N>
__device__ __forceinline__ void add_position_bias(float (&scores)[N / 2], const BiasArgs& bias,
                                                  int row, int first_column) {
  constexpr int kSign = kRowsAreQueries ? 1 : -1;
  const int column = first_column + 2 * (threadIdx.x % 4);
  const int base = kSign * (column - row);
  const int low = kRowsAreQueries ? base - 8 : base - N + 7;
  const int high = kRowsAreQueries ? base + N - 7 : base + 8;
  const auto add = [&](auto load) {
    float before[2] = {load(base - kSign * 8), load(base - kSign * 8 + kSign)};
    TGR_UNROLL
    for (int group = 0; group < N / 8; ++group) {
      const int at = base + kSign * 8 * group;
      const float here[2] = {load(at), load(at + kSign)};
      scores[4 * group] += here[0];
      scores[4 * group + 1] += here[1];
      scores[4 * group + 2] += before[0];
      scores[4 * group + 3] += before[1];
      before[0] = here[0];
      before[1] = here[1];
    }
  };
  if (__all_sync(~0u, low > -bias.position_length && high <= 0)) {
    add([&](int offset) { return 0.5f * __ldg(bias.position + offset); });
  } else {
    add([&](int offset) {
      return 0.5f * __ldg(bias.position + min(max(offset, 1 - bias.position_length), 0));
    });
  }
}

// Times of the rows and columns of one tile, relative to the sequence's first key.
template <bool kRowsAreQueries>
struct TileTimes {
  std::uint32_t rows[2];
  const std::uint32_t* columns;  // of the tile's first column
  int last;                      // the last column that is in the sequence

  __device__ __forceinline__ TileTimes(const BiasArgs& bias, const AttentionItem& item, int row,
                                       int first_column) {
    const int padded = (item.first_row / kPaddedRows + item.sequence) * kPaddedRows;
    const std::uint32_t* row_times = (kRowsAreQueries ? bias.query_times : bias.key_times) + padded;
    columns = (kRowsAreQueries ? bias.key_times : bias.query_times) + padded + first_column;
    rows[0] = __ldg(row_times + min(row, item.length - 1));
    rows[1] = __ldg(row_times + min(row + 8, item.length - 1));
    last = item.length - 1 - first_column;
  }
  __device__ __forceinline__ std::uint32_t gap(int half, std::uint32_t column_time) const {
    return kRowsAreQueries ? rows[half] - column_time : column_time - rows[half];
  }
};

// The buckets between which the thread's two rows move in a range of columns, and how many steps
// the longest way of the warp has.
struct BucketRange {
  int low[2];
  int high[2];
  int steps;
};

template <bool kRowsAreQueries>
__device__ __forceinline__ BucketRange bucket_range(const TileTimes<kRowsAreQueries>& times,
                                                    int first_column, int last_column) {
  // Each lane of four finds one of the four buckets.
  const bool want_high = threadIdx.x & 1;
  const bool second = threadIdx.x & 2;
  const int near = kRowsAreQueries ? last_column : first_column;
  const int far = kRowsAreQueries ? first_column : last_column;
  const std::uint32_t column_time = __ldg(times.columns + min(want_high ? far : near, times.last));
  const std::uint32_t row_time = second ? times.rows[1] : times.rows[0];
  const std::uint32_t later = kRowsAreQueries ? row_time : column_time;
  const std::uint32_t earlier = kRowsAreQueries ? column_time : row_time;
  // A masked element may lie in the future.
  const int bucket = short_gap_bucket(later > earlier ? later - earlier : 0);
  const int quad = threadIdx.x & 28;
  BucketRange range;
  range.low[0] = __shfl_sync(~0u, bucket, quad);
  range.high[0] = __shfl_sync(~0u, bucket, quad + 1);
  range.low[1] = __shfl_sync(~0u, bucket, quad + 2);
  range.high[1] = __shfl_sync(~0u, bucket, quad + 3);
  range.steps =
      __reduce_max_sync(~0u, max(range.high[0] - range.low[0], range.high[1] - range.low[1]));
  return range;
}

template <bool kRowsAreQueries, int N>
__device__ __forceinline__ void add_time_bias(float (&scores)[N / 2], const BiasArgs& bias,
                                              const AttentionItem& item, int row,
                                              int first_column) {
  const auto weight = [&](int bucket) {
    return 0.5f * __ldg(bias.time + min(bucket, kTimeBuckets - 1));
  };
  if (!__ldg(bias.usable + item.sequence)) {
    const std::int64_t* row_times =
        (kRowsAreQueries ? bias.exact_query_times : bias.exact_key_times) + item.first_row;
    const std::int64_t* column_times =
        (kRowsAreQueries ? bias.exact_key_times : bias.exact_query_times) + item.first_row;
    const int end = item.length - 1;
    TGR_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      const int column = first_column + i / 4 * 8 + i % 2 + 2 * (threadIdx.x % 4);
      scores[i] += weight(any_gap_bucket(__ldg(row_times + min(row + i / 2 % 2 * 8, end)),
                                         __ldg(column_times + min(column, end))));
    }
    return;
  }
  const TileTimes<kRowsAreQueries> times(bias, item, row, first_column);
  const BucketRange whole = bucket_range(times, 0, N - 1);
  if (whole.steps == 0) {
    const float w[2] = {weight(whole.low[0]), weight(whole.low[1])};
    TGR_UNROLL
    for (int i = 0; i < N / 2; ++i) scores[i] += w[i / 2 % 2];
    return;
  }
  TGR_UNROLL
  for (int part = 0; part < N / 16; ++part) {
    const BucketRange range = bucket_range(times, 16 * part, 16 * part + 15);
    float w[8];
    TGR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float start = weight(range.low[half]);
      TGR_UNROLL
      for (int i = 0; i < 4; ++i) w[i / 2 * 4 + 2 * half + i % 2] = start;
    }
    if (range.steps > 0) {
      const std::uint32_t* at = times.columns + 16 * part + 2 * (threadIdx.x % 4);
      const auto near = __ldg(reinterpret_cast<const uint2*>(at));
      const auto far = __ldg(reinterpret_cast<const uint2*>(at + 8));
      const std::uint32_t column_times[4] = {near.x, near.y, far.x, far.y};
#pragma unroll 1
      for (int step = 1; step <= range.steps; ++step) {
        TGR_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int bucket = range.low[half] + step;
          const std::uint32_t start = __ldg(kTimeBucketTables.first_short_gap + bucket);
          const float here = weight(bucket);
          TGR_UNROLL
          for (int i = 0; i < 4; ++i) {
            float& to = w[i / 2 * 4 + 2 * half + i % 2];
            to = times.gap(half, column_times[i]) >= start ? here : to;
          }
        }
      }
    }
    TGR_UNROLL
    for (int i = 0; i < 8; ++i) scores[8 * part + i] += w[i];
  }
}

// From products to half the biased scores.
template <bool kRowsAreQueries, int N>
__device__ __forceinline__ void add_bias(float (&scores)[N / 2], float half_alpha,
                                         const BiasArgs& bias, const AttentionItem& item, int row,
                                         int first_column) {
  TGR_UNROLL
  for (int i = 0; i < N / 2; ++i) scores[i] *= half_alpha;
  if (bias.position != nullptr) {
    add_position_bias<kRowsAreQueries, N>(scores, bias, row, first_column);
  }
  if (bias.time != nullptr) {
    add_time_bias<kRowsAreQueries, N>(scores, bias, item, row, first_column);
  }
}

}  // namespace turbogr::cuda
