// Gradients of the bias tables from a tile of score gradients, as the backward kernels hold it:
// rows are keys, columns queries, two bf16 a register.
#pragma once

#include "turbogr/cuda/attention_bias.cuh"

namespace turbogr::cuda {

__device__ __forceinline__ float unpack_bf16(const std::uint32_t* packed, int i) {
  return __uint_as_float(i % 2 == 0 ? packed[i / 2] << 16 : packed[i / 2] & 0xffff0000u);
}

// Sums of a tile of score gradients along its diagonals, added to the table: the work of the three
// warps that the producer leaves idle. The tile is [kKeys][64 queries] of bf16, lines of 128
// swizzled bytes. Thread t takes the diagonals query - key = e - 1, e, e + 1, e = 2 t - kKeys, so
// that every load brings two elements it wants. `offset`: query minus key of the tile's first
// element.
template <int kKeys>
__device__ __forceinline__ void add_position_gradient(const BiasArgs& bias, const char* tile,
                                                      int thread, int offset) {
  const int even = 2 * thread - kKeys;
  if (even >= 64) return;
  float sums[3] = {0, 0, 0};
  // A column 8 k + column at a time, in the row on which the diagonal meets it and the one below.
  // The warps have few registers, so little is unrolled.
#pragma unroll 1
  for (int column = 0; column < 8; column += 2) {
    TGR_UNROLL
    for (int below = 0; below < 2; ++below) {
      const int row = column + below - even;
      const int line = (row * 128 + 2 * column) ^ (row & 7) << 4;
      std::uint32_t two[8];
      TGR_UNROLL
      for (int k = 0; k < 8; ++k) {
        two[k] = static_cast<unsigned>(row + 8 * k) < kKeys
                     ? *reinterpret_cast<const std::uint32_t*>(tile + ((line ^ k << 4) + k * 1024))
                     : 0;
      }
      TGR_UNROLL
      for (int k = 0; k < 8; ++k) {
        sums[1 - below] += __uint_as_float(two[k] << 16);
        sums[2 - below] += __uint_as_float(two[k] & 0xffff0000u);
      }
    }
  }
  TGR_UNROLL
  for (int i = 0; i < 3; ++i) {
    const int at = offset + even + i - 1;
    if (sums[i] != 0 && at >= 0 && at < bias.position_length) {
      atomicAdd(bias.dposition - at, sums[i] * bias.gradient_scale);
    }
  }
}

// Sums over time buckets of this block, one copy a lane: in global memory, because shared memory
// has no f32 add, and apart, because adds to one address wait for each other.
__device__ __forceinline__ float* block_time_bins(const BiasArgs& bias) {
  return bias.time_bins + blockIdx.x * (kTimeCopies * kTimeBuckets);
}
__device__ __forceinline__ float* lane_time_bins(const BiasArgs& bias) {
  return block_time_bins(bias) + threadIdx.x % kTimeCopies * kTimeBuckets;
}

// Running sums of the thread's two rows in the buckets they are in. Along a row the bucket only
// grows.
struct TimeGradient {
  float* bins;
  int bucket[2] = {-1, -1};
  float sum[2] = {0, 0};

  __device__ explicit TimeGradient(float* lane_bins) : bins(lane_bins) {}

  // All lanes together: moves on to the next buckets, where they are others.
  __device__ __forceinline__ void go_to(int next0, int next1) {
    if (__any_sync(~0u, next0 != bucket[0] || next1 != bucket[1])) {
      TGR_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int next = half == 0 ? next0 : next1;
        float all = sum[half] + __shfl_xor_sync(~0u, sum[half], 1);
        all += __shfl_xor_sync(~0u, all, 2);
        if (next != bucket[half]) {
          if (threadIdx.x % 4 == 0 && all != 0) atomicAdd(bins + bucket[half], all);
          sum[half] = 0;
          bucket[half] = next;
        }
      }
    }
  }
};

template <int kGroup, int kGroups, int R>
__device__ __forceinline__ void add_few_time_gradients(const std::uint32_t (&grads)[R],
                                                       const TileTimes<false>& times,
                                                       const ShortGapTables& tables,
                                                       const BucketRange& range,
                                                       TimeGradient& state) {
  state.go_to(range.low[0], range.low[1]);
  float above[2] = {0, 0};  // sum of the elements in this bucket or a later one
  TGR_UNROLL
  for (int i = 4 * kGroup; i < 4 * (kGroup + kGroups); ++i) {
    above[i / 2 % 2] += unpack_bf16(grads, i);
  }
#pragma unroll 1
  for (int step = 1; step <= kMaxBoundaries && range.exceeds(step - 1); ++step) {
    const std::uint32_t start[2] = {times.boundary(0, tables.first_gap[range.low[0] + step]),
                                    times.boundary(1, tables.first_gap[range.low[1] + step])};
    float sum[2] = {0, 0};
    TGR_UNROLL
    for (int group = kGroup; group < kGroup + kGroups; ++group) {
      const uint2 pair = times.pair(group);
      TGR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float x = unpack_bf16(grads, 4 * group + i);
        if (times.beyond(i % 2 == 0 ? pair.x : pair.y, start[i / 2])) sum[i / 2] += x;
      }
    }
    state.sum[0] += above[0] - sum[0];
    state.sum[1] += above[1] - sum[1];
    above[0] = sum[0];
    above[1] = sum[1];
    state.go_to(min(range.low[0] + step, range.high[0]), min(range.low[1] + step, range.high[1]));
  }
  state.sum[0] += above[0];
  state.sum[1] += above[1];
}

// Next to the diagonal, where buckets change from element to element: integers in the warp's own
// bins, which shared memory can add to, in steps of a 2^20th of the tile's largest magnitude.
template <int N>
__device__ __forceinline__ void add_each_time_gradient(const std::uint32_t (&grads)[N / 4],
                                                       const TileTimes<false>& times,
                                                       const ShortGapTables& tables, float* to,
                                                       int* bins) {
  std::uint32_t largest = 0;
  TGR_UNROLL
  for (int i = 0; i < N / 4; ++i) largest = __vmaxu2(largest, grads[i] & 0x7fff7fffu);
  largest = __reduce_max_sync(~0u, max(largest & 0xffff, largest >> 16));
  if (largest == 0) return;
  // At most 2^20 an element and 2^10 elements a bin.
  const int exponent = min(254, 127 + 19 + 127 - static_cast<int>(largest >> 7));
  const float scale = __int_as_float(exponent << 23);
  TGR_UNROLL
  for (int group = 0; group < N / 8; ++group) {
    const uint2 pair = times.pair(group);
    TGR_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int bucket = tables.bucket(times.gap(i / 2, i % 2 == 0 ? pair.x : pair.y));
      // Rounds to an integer in the low bits.
      const float shifted = fmaf(unpack_bf16(grads, 4 * group + i), scale, 12582912.f);
      const int value = __float_as_int(shifted) - 0x4b400000;
      if (value != 0) atomicAdd(bins + bucket, value);
    }
  }
  __syncwarp();
  for (int bucket = static_cast<int>(threadIdx.x) % 32; bucket < kShortBuckets + 4; bucket += 32) {
    const int sum = bins[bucket];
    if (sum != 0) {
      bins[bucket] = 0;
      atomicAdd(to + bucket, ldexpf(static_cast<float>(sum), 127 - exponent));
    }
  }
  __syncwarp();
}

// The same without bins, straight to memory.
template <int N>
__device__ __forceinline__ void add_each_time_gradient(const std::uint32_t (&grads)[N / 4],
                                                       const TileTimes<false>& times,
                                                       const ShortGapTables& tables, float* to) {
  TGR_UNROLL
  for (int group = 0; group < N / 8; ++group) {
    const uint2 pair = times.pair(group);
    TGR_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float x = unpack_bf16(grads, 4 * group + i);
      const int bucket = tables.bucket(times.gap(i / 2, i % 2 == 0 ? pair.x : pair.y));
      if (x != 0) atomicAdd(to + bucket, x);
    }
  }
}

// `bins`: of this warp, in shared memory, zero; null where there is no room.
template <int N, bool kBins>
__device__ __forceinline__ void add_time_gradient(
    const std::uint32_t (&grads)[N / 4], const BiasArgs& bias, const ShortGapTables& tables,
    const RowTimes& rows, const std::uint32_t* column_times, const AttentionItem& item, int row,
    int first_column, int* bins) {
  TimeGradient state(lane_time_bins(bias));
  if (!rows.usable) {
    const std::int64_t* exact_rows = bias.exact_key_times + item.first_row;
    const std::int64_t* exact_columns = bias.exact_query_times + item.first_row;
    const int end = item.length - 1;
    TGR_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      const float x = unpack_bf16(grads, i);
      const int column = first_column + i / 4 * 8 + i % 2 + 2 * (threadIdx.x % 4);
      if (x != 0) {
        atomicAdd(state.bins + any_gap_bucket(__ldg(exact_rows + min(row + i / 2 % 2 * 8, end)),
                                              __ldg(exact_columns + min(column, end))),
                  x);
      }
    }
    return;
  }
  const TileTimes<false> times(rows, column_times, item.length - 1 - first_column);
  const BucketRange range = tile_range<false, N>(times, tables);
  if (!range.exceeds(kMaxBoundaries)) {
    add_few_time_gradients<0, N / 8>(grads, times, tables, range, state);
  } else {
    if constexpr (kBins) {
      add_each_time_gradient<N>(grads, times, tables, state.bins, bins);
    } else {
      add_each_time_gradient<N>(grads, times, tables, state.bins);
    }
  }
  state.go_to(-1, -1);
}

}  // namespace turbogr::cuda
