// Gradients of the bias tables from a tile of score gradients, as the backward kernels hold it:
// rows are keys, columns queries, two bf16 a register.
#pragma once

#include "turbogr/cuda/attention_bias.cuh"

namespace turbogr::cuda {

__device__ __forceinline__ float unpack_bf16(const std::uint32_t* packed, int i) {
  return __uint_as_float(i % 2 == 0 ? packed[i / 2] << 16 : packed[i / 2] & 0xffff0000u);
}

// Sums along the diagonals. A thread's elements lie on N / 8 + 1 diagonals for either parity of
// column; eight rows of a warp are folded onto the first by moving two rows up and two columns
// left, then four and four; what is left goes to the table, one add a warp and diagonal.
template <int N>
__device__ __forceinline__ void add_position_gradient(const std::uint32_t (&grads)[N / 4],
                                                      const BiasArgs& bias, int row,
                                                      int first_column) {
  constexpr int kGroups = N / 8 + 2;  // from two groups of 8 columns left of the tile
  const int lane = threadIdx.x % 32;
  const int quarter = lane % 4;
  float sums[kGroups][2];
  TGR_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    TGR_UNROLL
    for (int odd = 0; odd < 2; ++odd) {
      const int group = g - 2;
      float sum = 0;
      if (group >= 0) sum += unpack_bf16(grads, 4 * group + odd);
      if (group + 1 >= 0 && group + 1 < N / 8) sum += unpack_bf16(grads, 4 * (group + 1) + 2 + odd);
      sums[g][odd] = sum;
    }
  }
  TGR_UNROLL
  for (int shift = 1; shift <= 2; ++shift) {
    const int source = (lane / 4 + 2 * shift) % 8 * 4 + (quarter + shift) % 4;
    TGR_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TGR_UNROLL
      for (int odd = 0; odd < 2; ++odd) {
        // What the receiver, `shift` pairs of columns to the left, calls group g.
        const float next = g + 1 < kGroups ? sums[g + 1][odd] : 0.f;
        const float sent = quarter < shift ? next : sums[g][odd];
        sums[g][odd] += __shfl_sync(~0u, sent, source);
      }
    }
  }
  // Rows 0 and 1 hold all; row 1 onto row 0, whose columns 0 to 3 then have one pair of diagonals
  // each.
  TGR_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    const float even = __shfl_down_sync(~0u, sums[g][1], 4);
    const float next = g + 1 < kGroups ? sums[g + 1][0] : 0.f;
    const float odd = __shfl_sync(~0u, quarter == 0 ? next : sums[g][0], 4 + ((quarter + 1) & 3));
    if (lane < 4) {
      // Query minus key.
      const int offset = first_column - row + 8 * (g - 2) + 2 * quarter;
      const float scale = bias.gradient_scale;
      const float a = (sums[g][0] + even) * scale;
      const float b = (sums[g][1] + odd) * scale;
      if (offset >= 0 && offset < bias.position_length) atomicAdd(bias.dposition - offset, a);
      if (offset + 1 >= 0 && offset + 1 < bias.position_length) {
        atomicAdd(bias.dposition - offset - 1, b);
      }
    }
  }
}

// Running sums of the thread's two rows in the buckets they are in. Along a row the bucket only
// grows, so a sum moves to the block's bins a few dozen times for a whole row of the batch.
struct TimeGradient {
  float* bins;  // [kTimeBuckets], shared memory
  int bucket[2] = {0, 0};
  float sum[2] = {0, 0};

  __device__ explicit TimeGradient(float* shared_bins) : bins(shared_bins) {}

  // All lanes together: moves on to `next`, if that is another bucket.
  __device__ __forceinline__ void go_to(int next0, int next1) {
    const bool moves = next0 != bucket[0] || next1 != bucket[1];
    if (__any_sync(~0u, moves)) {
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

template <int N>
__device__ __forceinline__ void add_time_gradient(const std::uint32_t (&grads)[N / 4],
                                                  const BiasArgs& bias, const AttentionItem& item,
                                                  int row, int first_column, TimeGradient& state) {
  if (!__ldg(bias.usable + item.sequence)) {
    const std::int64_t* row_times = bias.exact_key_times + item.first_row;
    const std::int64_t* column_times = bias.exact_query_times + item.first_row;
    const int end = item.length - 1;
    TGR_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      const float x = unpack_bf16(grads, i);
      const int column = first_column + i / 4 * 8 + i % 2 + 2 * (threadIdx.x % 4);
      if (x != 0) {
        atomicAdd(state.bins + any_gap_bucket(__ldg(row_times + min(row + i / 2 % 2 * 8, end)),
                                              __ldg(column_times + min(column, end))),
                  x);
      }
    }
    return;
  }
  const TileTimes<false> times(bias, item, row, first_column);
  const BucketRange whole = bucket_range(times, 0, N - 1);
  if (whole.steps == 0) {
    state.go_to(whole.low[0], whole.low[1]);
    TGR_UNROLL
    for (int i = 0; i < N / 2; ++i) state.sum[i / 2 % 2] += unpack_bf16(grads, i);
    return;
  }
  TGR_UNROLL
  for (int part = 0; part < N / 16; ++part) {
    const BucketRange range = bucket_range(times, 16 * part, 16 * part + 15);
    state.go_to(range.low[0], range.low[1]);
    float above[2] = {0, 0};  // sum of the elements in this bucket or a later one
    TGR_UNROLL
    for (int i = 0; i < 8; ++i) above[i / 2 % 2] += unpack_bf16(grads, 8 * part + i);
    if (range.steps > 0) {
      const std::uint32_t* at = times.columns + 16 * part + 2 * (threadIdx.x % 4);
      const auto near = __ldg(reinterpret_cast<const uint2*>(at));
      const auto far = __ldg(reinterpret_cast<const uint2*>(at + 8));
      const std::uint32_t column_times[4] = {near.x, near.y, far.x, far.y};
#pragma unroll 1
      for (int step = 1; step <= range.steps; ++step) {
        TGR_UNROLL
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t start =
              __ldg(kTimeBucketTables.first_short_gap + range.low[half] + step);
          float sum = 0;
          TGR_UNROLL
          for (int i = 0; i < 4; ++i) {
            const float x = unpack_bf16(grads, 8 * part + i / 2 * 4 + 2 * half + i % 2);
            if (times.gap(half, column_times[i]) >= start) sum += x;
          }
          state.sum[half] += above[half] - sum;
          above[half] = sum;
        }
        state.go_to(min(range.low[0] + step, range.high[0]),
                    min(range.low[1] + step, range.high[1]));
      }
    }
    state.sum[0] += above[0];
    state.sum[1] += above[1];
  }
}

}  // namespace turbogr::cuda
