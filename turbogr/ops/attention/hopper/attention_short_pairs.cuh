// What belongs to the pairs of a pack and to no head: which keys a query sees, and the bias. A
// thread makes it once a pack for the very pairs that it holds in a product, so that it alone reads
// it again. A block of pairs is 16 queries x 16 keys; a warp's are those up to the diagonal.
#pragma once

#include <climits>

#include "turbogr/ops/attention/hopper/attention_pairs.cuh"
#include "turbogr/ops/attention/hopper/attention_short_tile.cuh"
#include "turbogr/ops/attention/hopper/time_buckets.cuh"

namespace turbogr::cuda {

inline constexpr int kPairBlocks = kShortWarps * (kShortWarps + 1) / 2;
inline constexpr int kNoBucket = 255;  // the query does not see the key

__device__ __forceinline__ int short_warp() { return static_cast<int>(threadIdx.x) / 32; }

// Where element i of a thread's eight lies in a block of pairs.
struct PairPlace {
  int row;
  int column;
  __device__ __forceinline__ explicit PairPlace(int i) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    row = lane / 4 + i / 2 % 2 * 8;
    column = lane % 4 * 2 + i / 4 * 8 + i % 2;
  }
};

// Where the sequences of a pack lie, in rows of the pack.
struct PackRows {
  std::uint64_t starts;
  int rows;

  __device__ __forceinline__ int begin(int row) const {
    // NOLINTNEXTLINE(bugprone-misplaced-widening-cast): bits, of the same width
    return row - __clzll(static_cast<long long>(starts << (63 - row)));
  }
  __device__ __forceinline__ int end(int row) const {
    const std::uint64_t after = row < 63 ? starts >> (row + 1) : 0;
    return after != 0 ? row + __ffsll(static_cast<long long>(after)) : rows;
  }
  // The warp's queries see keys in groups from here to the warp's own; none: past it.
  __device__ __forceinline__ int first_key_group() const {
    const int row = kGroup * short_warp();
    return row < rows ? begin(row) / kGroup : kShortWarps;
  }
  // The warp's keys are seen by queries in groups from the warp's own to here; none: before it.
  __device__ __forceinline__ int last_query_group() const {
    const int row = kGroup * short_warp();
    return row < rows ? (end(min(row + kGroup, rows) - 1) - 1) / kGroup : -1;
  }
};

struct PackPairs {
  // Of the call: half of each weight.
  float position[kPackRows];     // of query - key
  float time[kTimeBuckets + 3];  // behind the last bucket 0, of pairs that are hidden
  TimeBucketTables::Entry by_bits[33];
  // Of the pack.
  std::int64_t key_times[kPackRows];
  std::int64_t query_times[kPackRows];
  int num_targets[kPackRows];   // where a sequence begins
  uint4 bias[kPairBlocks][32];  // of each thread, by block: half of it, eight f16

  __device__ static __forceinline__ int block_of(int key_group) {
    return short_warp() * (short_warp() + 1) / 2 + key_group;
  }

  __device__ void fill_tables(const BiasArgs& args) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < kPackRows; i += kShortThreads) {
      position[i] = args.position != nullptr
                        ? 0.5f * __ldg(args.position - min(i, args.position_length - 1))
                        : 0.f;
    }
    if (args.time == nullptr) return;
    for (int i = thread; i <= kTimeBuckets; i += kShortThreads) {
      time[i] = i < kTimeBuckets ? 0.5f * __ldg(args.time + i) : 0.f;
    }
    for (int i = thread; i < 33; i += kShortThreads) by_bits[i] = kTimeBucketTables.by_bits[i];
  }

  // Whoever calls it waits for all threads before fill_bias.
  __device__ void bring(const ShortArgs& args, const AttentionPack& pack) {
    const int thread = static_cast<int>(threadIdx.x);
    if (args.bias.time != nullptr && thread % kPackRows < pack.rows) {
      const int row = thread % kPackRows;
      if (thread < kPackRows) {
        key_times[row] = __ldg(args.bias.exact_key_times + pack.first_row + row);
      } else {
        query_times[row] = __ldg(args.bias.exact_query_times + pack.first_row + row);
      }
    }
    if (args.bias.num_targets == nullptr) return;
    for (int b = pack.first_sequence + thread; b < pack.end_sequence; b += kShortThreads) {
      const std::int64_t begin = __ldg(args.offsets + b);
      if (__ldg(args.offsets + b + 1) > begin) {
        num_targets[begin - pack.first_row] = static_cast<int>(__ldg(args.bias.num_targets + b));
      }
    }
  }

  // False where the gap is too large for `bucket`, which is then any.
  __device__ __forceinline__ bool find_bucket(int query, int key, int& bucket) const {
    const std::int64_t a = query_times[query];
    const std::int64_t b = key_times[key];
    const std::uint64_t gap = a > b ? static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b)
                                    : static_cast<std::uint64_t>(b) - static_cast<std::uint64_t>(a);
    const auto low = static_cast<std::uint32_t>(gap);
    const auto entry = reinterpret_cast<const uint4*>(by_bits)[32 - __clz(static_cast<int>(low))];
    bucket = static_cast<int>(entry.x) + (low >= entry.y) + (low >= entry.z) + (low >= entry.w);
    return gap < ~0u;
  }

  // `buckets` of each thread, by block, eight bytes; null: not wanted.
  __device__ void fill_bias(const BiasArgs& args, const PackRows& rows, uint2 (*buckets)[32]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int window = static_cast<int>(min(args.window, static_cast<std::int64_t>(kPackRows)));
    int first[2];
    int history_end[2];
    TGR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = kGroup * short_warp() + lane / 4 + 8 * half;
      first[half] = row < rows.rows ? rows.begin(row) : kPackRows;
      history_end[half] = kPackRows;
      if (args.num_targets != nullptr && row < rows.rows) {
        history_end[half] = rows.end(row) - num_targets[first[half]];
      }
    }
#pragma unroll 1
    for (int group = rows.first_key_group(); group <= short_warp(); ++group) {
      float values[8];
      int numbers[8];
      unsigned far = 0;
      // All eight without a branch, seen or not: their loads wait for each other otherwise.
      TGR_UNROLL
      for (int i = 0; i < 8; ++i) {
        const PairPlace place(i);
        const int query = kGroup * short_warp() + place.row;
        const int key = kGroup * group + place.column;
        const int targets = history_end[i / 2 % 2];
        const bool seen =
            (key >= first[i / 2 % 2]) & (key <= query) &
            (key >= targets ? key == query : (window == 0) | (key >= min(query, targets) - window));
        values[i] = seen ? position[abs(query - key)] : kHidden;
        numbers[i] = kNoBucket;
        if (args.time != nullptr) {
          int number;
          const bool near = find_bucket(query, key, number);
          numbers[i] = seen ? number : kNoBucket;
          far |= (seen && !near ? 1u : 0u) << i;
        }
      }
      if (args.time != nullptr) {
        TGR_UNROLL
        for (int i = 0; i < 8; ++i) {
          if (far >> i & 1) {
            const PairPlace place(i);
            numbers[i] = any_gap_bucket(query_times[kGroup * short_warp() + place.row],
                                        key_times[kGroup * group + place.column]);
          }
          values[i] += time[min(numbers[i], kTimeBuckets)];
        }
      }
      uint4 halves;
      auto* two = reinterpret_cast<__half2*>(&halves);
      TGR_UNROLL
      for (int i = 0; i < 4; ++i) two[i] = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
      bias[block_of(group)][lane] = halves;
      if (buckets != nullptr) {
        std::uint32_t packed[2] = {};
        TGR_UNROLL
        for (int i = 0; i < 8; ++i) {
          packed[i / 4] |= static_cast<std::uint32_t>(numbers[i]) << (i % 4 * 8);
        }
        buckets[block_of(group)][lane] = make_uint2(packed[0], packed[1]);
      }
    }
  }

  // From scores to half the argument of SiLU.
  __device__ __forceinline__ void add_to(float (&scores)[8], float half_alpha,
                                         int key_group) const {
    const uint4 halves = bias[block_of(key_group)][threadIdx.x % 32];
    const auto* packed = reinterpret_cast<const __half2*>(&halves);
    TGR_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float2 two = __half22float2(packed[i]);
      scores[2 * i] = fmaf(half_alpha, scores[2 * i], two.x);
      scores[2 * i + 1] = fmaf(half_alpha, scores[2 * i + 1], two.y);
    }
  }
};

// Work is handed out as (pack, part of the heads). Parts keep blocks busy where packs are few, but
// each makes the bias again, which costs about as much as a head.
struct PackWork {
  int packs;
  int parts = 1;
  int heads;

  __device__ explicit PackWork(const ShortArgs& args) : packs(*args.num_packs), heads(args.heads) {
    const int blocks = static_cast<int>(gridDim.x);
    int least = INT_MAX;
    for (int tried = 1; tried <= heads; ++tried) {
      const int rounds = (packs * tried + blocks - 1) / blocks;
      const int cost = rounds * ((heads + tried - 1) / tried + 1);
      if (cost < least) {
        least = cost;
        parts = tried;
      }
    }
  }
  __device__ int count() const { return packs * parts; }
  __device__ int pack(int number) const { return number / parts; }
  __device__ int first_head(int number) const { return number % parts * heads / parts; }
  __device__ int end_head(int number) const { return (number % parts + 1) * heads / parts; }
};

}  // namespace turbogr::cuda
