// Time buckets of pairs of one key with sorted queries, which pass through the buckets in order.
#pragma once

#include "turbogr/ops/attention/hopper/attention_pairs.cuh"
#include "turbogr/ops/attention/hopper/time_buckets.cuh"

namespace turbogr::cuda {

// Where the times of a unit lie in the padded arrays of a sequence.
__device__ __forceinline__ int padded_start(const AttentionItem& tile) {
  return (tile.first_row / kPaddedRows + tile.sequence) * kPaddedRows;
}

// Of one key's time, in sequences whose times are usable.
struct BucketSearch {
  std::uint32_t key;

  // Of a pair whose query comes first, which the causal mask hides, the bucket is any.
  __device__ __forceinline__ int bucket_of(const ShortGapTables& tables,
                                           std::uint32_t query) const {
    return tables.bucket(max(query, key) - key);
  }
  // The earliest query in the bucket or a later one.
  __device__ __forceinline__ std::uint32_t start_of(const ShortGapTables& tables,
                                                    int bucket) const {
    const std::uint32_t gap = tables.first_gap[bucket];
    return key + gap < gap ? ~0u : key + gap;  // no query is so late
  }
};

// For any times, in any order: those of a pair, and its bucket.
__device__ __forceinline__ std::int64_t exact_query_time(const BiasArgs& bias,
                                                         const AttentionItem& tile, int query) {
  return __ldg(bias.exact_query_times + tile.first_row + min(query, tile.length - 1));
}
__device__ __forceinline__ std::int64_t exact_key_time(const BiasArgs& bias,
                                                       const AttentionItem& tile, int key) {
  return __ldg(bias.exact_key_times + tile.first_row + min(key, tile.length - 1));
}
__device__ __forceinline__ int exact_bucket(const ShortGapTables& tables, std::int64_t query,
                                            std::int64_t key) {
  const auto q = static_cast<std::uint64_t>(query);
  const auto k = static_cast<std::uint64_t>(key);
  const std::uint64_t gap = query > key ? q - k : k - q;
  return gap < ~0u ? tables.bucket(static_cast<std::uint32_t>(gap)) : any_gap_bucket(query, key);
}

}  // namespace turbogr::cuda
