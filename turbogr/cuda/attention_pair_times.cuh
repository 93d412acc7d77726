// Time buckets of a unit of 64 keys x 64 queries, eight queries of one key at a time.
#pragma once

#include "turbogr/cuda/attention_pairs.cuh"
#include "turbogr/cuda/time_buckets.cuh"

namespace turbogr::cuda {

// In shared memory.
struct PairTimes {
  std::uint32_t keys[kUnit];
  alignas(16) std::uint32_t queries[kUnit];
  int usable;

  // By the whole block; the caller synchronises before and after.
  __device__ __forceinline__ void load(const BiasArgs& bias, const AttentionItem& tile,
                                       int first_query, int first_key) {
    const int start = (tile.first_row / kPaddedRows + tile.sequence) * kPaddedRows;
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < 2 * kUnit; i += static_cast<int>(blockDim.x)) {
      if (i < kUnit) {
        keys[i] = __ldg(bias.key_times + start + first_key + i);
      } else {
        queries[i - kUnit] = __ldg(bias.query_times + start + first_query + i - kUnit);
      }
    }
    if (thread == 0) usable = __ldg(bias.usable + tile.sequence);
  }

  // The bucket that all pairs of the unit share, or -1. Far from the diagonal most units have one.
  __device__ __forceinline__ int only_bucket(const ShortGapTables& tables) const {
    const int first = tables.bucket(queries[0] - keys[kUnit - 1]);
    const int last = tables.bucket(queries[kUnit - 1] - keys[0]);
    return usable != 0 && first == last ? first : -1;
  }
};

// Times of eight neighbouring queries.
struct EightTimes {
  uint4 low;
  uint4 high;

  __device__ __forceinline__ EightTimes(const PairTimes& times, int piece)
      : low(reinterpret_cast<const uint4*>(times.queries + 8 * piece)[0]),
        high(reinterpret_cast<const uint4*>(times.queries + 8 * piece)[1]) {}

  // Where they are usable: the buckets of their pairs with one key. Sorted times pass through the
  // buckets in order, and most eights through one or two: then it calls few(first, last, beyond),
  // where beyond(i) tells whether pair i is in the last one. Else it calls many(buckets). Of a pair
  // whose query comes first, which the causal mask hides, the bucket is any.
  template <class Few, class Many>
  __device__ __forceinline__ void buckets(const ShortGapTables& tables, std::uint32_t key_time,
                                          Few few, Many many) const {
    const std::uint32_t gaps[8] = {low.x - key_time,  low.y - key_time,  low.z - key_time,
                                   low.w - key_time,  high.x - key_time, high.y - key_time,
                                   high.z - key_time, high.w - key_time};
    const int first = tables.bucket(gaps[0]);
    const int last = tables.bucket(gaps[7]);
    if (static_cast<unsigned>(last - first) <= 1) {
      const std::uint32_t start = first == last ? 0 : tables.first_gap[last];
      few(first, last, [&](int i) { return gaps[i] >= start; });
    } else {
      int all[8];
      TGR_UNROLL
      for (int i = 0; i < 8; ++i) all[i] = tables.bucket(gaps[i]);
      many(all);
    }
  }
};

// For any times: the bucket of one pair.
__device__ __forceinline__ int exact_bucket(const BiasArgs& bias, const AttentionItem& tile,
                                            int query, int key) {
  const int end = tile.length - 1;
  return any_gap_bucket(__ldg(bias.exact_query_times + tile.first_row + min(query, end)),
                        __ldg(bias.exact_key_times + tile.first_row + min(key, end)));
}

}  // namespace turbogr::cuda
