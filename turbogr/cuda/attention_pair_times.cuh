// Time buckets of a unit of 64 keys x 64 queries. A thread takes a key and walks along the queries,
// eight at a time: sorted times pass through the buckets in order, and most eights of a sequence
// lie in the bucket in which the ones before them lay.
#pragma once

#include "turbogr/cuda/attention_pairs.cuh"
#include "turbogr/cuda/time_buckets.cuh"

namespace turbogr::cuda {

// Where the times of a unit lie in the padded arrays of a sequence.
__device__ __forceinline__ int padded_start(const AttentionItem& tile) {
  return (tile.first_row / kPaddedRows + tile.sequence) * kPaddedRows;
}

struct BucketWalk {
  std::uint32_t key;
  std::uint32_t end = 0;  // queries from here on are in a later bucket
  int bucket = 0;

  __device__ __forceinline__ void stand(const ShortGapTables& tables, int at) {
    bucket = at;
    const std::uint32_t gap = tables.first_gap[at + 1];
    end = key + gap;
    if (end < gap) end = ~0u;  // no query is so late
  }
  // Of a pair whose query comes first, which the causal mask hides, the bucket is any.
  __device__ __forceinline__ int bucket_of(const ShortGapTables& tables,
                                           std::uint32_t query) const {
    return tables.bucket(max(query, key) - key);
  }

  // For eight queries (in shared memory) of which the last is not before `end`: calls two(last,
  // beyond) where the bucket changes once, beyond(i) telling whether query i is in the last one,
  // else many(buckets); stands at the last one then.
  template <class Two, class Many>
  __device__ __forceinline__ void pass(const ShortGapTables& tables, const std::uint32_t* queries,
                                       Two two, Many many) {
    alignas(16) std::uint32_t eight[8];
    TGR_UNROLL
    for (int i = 0; i < 2; ++i) {
      reinterpret_cast<uint4*>(eight)[i] = reinterpret_cast<const uint4*>(queries)[i];
    }
    const int last = bucket_of(tables, eight[7]);
    if (last == bucket + 1) {
      two(last, [&](int i) { return eight[i] >= end; });
    } else {
      int all[8];
      TGR_UNROLL
      for (int i = 0; i < 7; ++i) all[i] = bucket_of(tables, eight[i]);
      all[7] = last;
      many(all);
    }
    stand(tables, last);
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
