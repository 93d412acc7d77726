// Sums of a unit's gradients over time buckets (attention_table_gradients.cu): each thread has a
// key and bins of its own in shared memory.
#pragma once

#include "turbogr/ops/attention/hopper/exact_sums.cuh"
#include "turbogr/ops/attention/hopper/table_gradient_units.cuh"
#include "turbogr/ops/attention/hopper/time_buckets.cuh"

namespace turbogr::cuda::table_gradients {

constexpr int kFewBuckets = 4;  // beyond the first: each costs a pass over the unit
constexpr int kBinRows = kShortBuckets;

__device__ __forceinline__ int time_copy() { return static_cast<int>(blockIdx.x) % kTimeSumCopies; }

// Which of a warp's bins hold something.
struct BinRange {
  int first = kBinRows;
  int last = -1;

  __device__ __forceinline__ void take(int from, int to) {
    first = min(first, from);
    last = max(last, to);
  }
  // Adds a warp's bins to the sums in memory and leaves none. At the end of each walk: which walks
  // a block gets is a matter of chance.
  __device__ __forceinline__ void flush(float (*bins)[32], const ExactSums& sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();
    for (int bucket = first + lane; bucket <= last; bucket += 32) {
      float all = 0;
#pragma unroll 8
      for (int i = 0; i < 32; ++i) {
        float& bin = bins[bucket][(i + bucket) % 32];
        all += bin;
        bin = 0;
      }
      sums.add(time_copy(), bucket, all);
    }
    __syncwarp();
    *this = {};
  }
};

struct Gradients {
  float at[8];
  __device__ explicit Gradients(const uint4& packed) {
    const std::uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
    TGR_UNROLL
    for (int i = 0; i < 4; ++i) {
      at[2 * i] = __uint_as_float(words[i] << 16);
      at[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  }
};

// The sum of this thread's key over queries not before `end`; no key of the warp has an earlier end
// than `first_end`.
__device__ __forceinline__ float sum_from(const Stage& stage, std::uint32_t end,
                                          std::uint32_t first_end) {
  const int line = static_cast<int>(threadIdx.x);
  const unsigned beyond = __ballot_sync(~0u, stage.queries[line % 8 * 8 + 7] >= first_end);
  float sums[2] = {};
#pragma unroll 2
  for (int piece = __ffs(static_cast<int>(beyond | 0x80)) - 1; piece < 8; ++piece) {
    const Gradients gradients(
        *reinterpret_cast<const uint4*>(stage.unit + piece_offset(line, piece)));
    const auto* queries = reinterpret_cast<const uint4*>(stage.queries + 8 * piece);
    TGR_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint4 four = queries[i];
      if (four.x >= end) sums[i] += gradients.at[4 * i];
      if (four.y >= end) sums[i] += gradients.at[4 * i + 1];
      if (four.z >= end) sums[i] += gradients.at[4 * i + 2];
      if (four.w >= end) sums[i] += gradients.at[4 * i + 3];
    }
  }
  return sums[0] + sums[1];
}

// Adds this thread's key, whose pairs may be in any number of buckets.
__device__ __forceinline__ void add_key_times(const ShortGapTables& tables, const Stage& stage,
                                              float* own_bins) {
  const int line = static_cast<int>(threadIdx.x);
  const BucketSearch key{stage.keys[line]};
  // On the main diagonal no query before the warp's first key sees any.
  int piece = stage.tile.block == 0 ? line / 32 * 4 : 0;
  int bucket = key.bucket_of(tables, stage.queries[8 * piece]);
  float run = 0;  // of the pairs in that bucket
#pragma unroll 1
  for (; piece < 8; ++piece) {
    const Gradients gradients(
        *reinterpret_cast<const uint4*>(stage.unit + piece_offset(line, piece)));
    // Runs that end with the queries before each. Sorted times are never back in a bucket, so that
    // all bins can be read before the first is written.
    bool ends[8];
    float sums[8];
    float* bins[8];
    TGR_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int next = key.bucket_of(tables, stage.queries[8 * piece + i]);
      ends[i] = next != bucket;
      bins[i] = own_bins + bucket * 32;
      sums[i] = run + (ends[i] ? *bins[i] : 0.f);
      run = gradients.at[i] + (ends[i] ? 0.f : run);
      bucket = next;
    }
    TGR_UNROLL
    for (int i = 0; i < 8; ++i) {
      if (ends[i]) *bins[i] = sums[i];
    }
  }
  own_bins[bucket * 32] += run;
}

// The same for times that are not sorted or too far apart: every pair's bucket is looked up. Those
// of long gaps have no bin: they go straight to memory.
__device__ __forceinline__ void add_exact_times(const ShortGapTables& tables, const BiasArgs& bias,
                                                const Stage& stage, float* own_bins) {
  const int line = static_cast<int>(threadIdx.x);
  const int first_query = stage.query_tile * kUnit;
  const std::int64_t key =
      exact_key_time(bias, stage.tile, first_query - stage.tile.block * kUnit + line);
  int bucket = 0;
  float run = 0;  // of the pairs in that bucket
  const auto end_run = [&] {
    if (bucket < kBinRows) {
      own_bins[bucket * 32] += run;
    } else if (run != 0) {
      bias.time_sums.add(time_copy(), bucket, run);
    }
  };
#pragma unroll 1
  for (int piece = 0; piece < 8; ++piece) {
    const Gradients gradients(
        *reinterpret_cast<const uint4*>(stage.unit + piece_offset(line, piece)));
    TGR_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int next = exact_bucket(
          tables, exact_query_time(bias, stage.tile, first_query + 8 * piece + i), key);
      if (next != bucket) {
        end_run();
        bucket = next;
        run = 0;
      }
      run += gradients.at[i];
    }
  }
  end_run();
}

}  // namespace turbogr::cuda::table_gradients
