#include "turbogr/cuda/attention_pair_times.cuh"
#include "turbogr/cuda/attention_pairs.cuh"
#include "turbogr/cuda/attention_tile.cuh"
#include "turbogr/cuda/check.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kThreads = kUnit;
constexpr int kWarps = kThreads / 32;
constexpr int kFetches = kUnitBytes / 16 / kThreads;
constexpr int kSplit = 4;  // pieces of work a diagonal of units
// Sums over time buckets, one copy a thread: no two threads ever add to the same.
constexpr int kBinRows = kShortBuckets + 4;
constexpr int kBinBytes = kWarps * kBinRows * 32 * 4;

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
  __device__ float sum() const {
    return ((at[0] + at[1]) + (at[2] + at[3])) + ((at[4] + at[5]) + (at[6] + at[7]));
  }
};

// One pair at a time, straight to memory: for times that are not sorted or too far apart.
__device__ __noinline__ void add_exact_times(const BiasArgs& bias, const AttentionItem& tile,
                                             int first_query, int first_key, const char* unit) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kUnit * kUnit; i += kThreads) {
    const int line = i / kUnit;
    const int query = i % kUnit;
    const auto packed = *reinterpret_cast<const std::uint16_t*>(
        unit + piece_offset(line, query / 8) + query % 8 * 2);
    const float gradient = __uint_as_float(static_cast<std::uint32_t>(packed) << 16);
    if (gradient != 0) {
      atomicAdd(bias.dtime + exact_bucket(bias, tile, first_query + query, first_key + line),
                gradient * bias.gradient_scale);
    }
  }
}

// A block takes units along a diagonal of the sequence's matrix of units, so that the differences
// of positions are the same in all of them. A thread has one piece of eight queries in every eighth
// line, on a line parallel to the unit's diagonal that leaves the unit at one end and enters it
// again at the other: thread t the pieces that begin on query - key = t - 63, and then those on t +
// 1. Pieces of one beginning share their eight diagonals, whose sums stay in registers.
__global__ void __launch_bounds__(kThreads)
    table_gradients_kernel(PairArgs pairs, BiasArgs bias, const AttentionItem* tiles,
                           int num_tiles) {
  extern __shared__ float bins[];
  __shared__ alignas(16) char unit[kUnitBytes];
  __shared__ PairTimes times;
  __shared__ ShortGapTables tables;
  const int thread = static_cast<int>(threadIdx.x);
  float* own_bins = bins + thread / 32 * (kBinRows * 32) + thread % 32;
  if (bias.dtime != nullptr) {
    tables.fill(nullptr, 0, thread, kThreads);
    for (int i = thread; i < kBinBytes / 4; i += kThreads) bins[i] = 0;
  }

  const auto all_work = static_cast<unsigned>(num_tiles * kSplit);
  for (unsigned turn = blockIdx.x; turn < all_work; turn += gridDim.x) {
    // Long and short diagonals mixed, each of them once: no block has only long ones.
    const auto work = static_cast<int>(std::uint64_t{turn} * 1000003u % all_work);
    const AttentionItem tile = tiles[work / kSplit];
    if (tile.length == 0) continue;
    const int query_tiles = (tile.length + kUnit - 1) / kUnit;
    const int diagonal = tile.block;
    float low[8] = {};   // diagonals t - 63 and on
    float high[8] = {};  // diagonals t + 1 and on
    uint4 next[kFetches];
    const auto fetch = [&](int query_tile) {
      const char* from = pairs.gradients +
                         unit_offset(pairs, tile.sequence, query_tile, query_tile - diagonal) +
                         thread * 16;
      TGR_UNROLL
      for (int i = 0; i < kFetches; ++i) {
        next[i] = __ldcs(reinterpret_cast<const uint4*>(from + i * kThreads * 16));
      }
    };
    int query_tile = diagonal + work % kSplit;
    if (query_tile >= query_tiles) continue;
    fetch(query_tile);
    for (; query_tile < query_tiles; query_tile += kSplit) {
      const int first_query = query_tile * kUnit;
      const int first_key = (query_tile - diagonal) * kUnit;
      __syncthreads();
      TGR_UNROLL
      for (int i = 0; i < kFetches; ++i) {
        *reinterpret_cast<uint4*>(unit + (i * kThreads + thread) * 16) = next[i];
      }
      if (bias.dtime != nullptr) times.load(bias, tile, first_query, first_key);
      __syncthreads();
      if (query_tile + kSplit < query_tiles) fetch(query_tile + kSplit);
      const int only = bias.dtime != nullptr ? times.only_bucket(tables) : 0;
      float unit_sum = 0;
      // Not all unrolled: the code would not fit the instruction cache.
#pragma unroll 2
      for (int piece = 0; piece < 8; ++piece) {
        const int from = 8 * piece + kUnit - 1 - thread;
        const int line = from % kUnit;
        const Gradients gradients(
            *reinterpret_cast<const uint4*>(unit + piece_offset(line, piece)));
        if (from < kUnit) {
          TGR_UNROLL
          for (int i = 0; i < 8; ++i) low[i] += gradients.at[i];
        } else {
          TGR_UNROLL
          for (int i = 0; i < 8; ++i) high[i] += gradients.at[i];
        }
        if (only >= 0) {
          unit_sum += gradients.sum();
          continue;
        }
        if (times.usable == 0) continue;
        EightTimes(times, piece)
            .buckets(
                tables, times.keys[line],
                [&](int first, int last, auto beyond) {
                  float sum = 0;
                  TGR_UNROLL
                  for (int i = 0; i < 8; ++i) sum += beyond(i) ? gradients.at[i] : 0.f;
                  own_bins[last * 32] += sum;
                  if (first != last) own_bins[first * 32] += gradients.sum() - sum;
                },
                [&](const int(&buckets)[8]) {
                  float sum = gradients.at[0];
                  TGR_UNROLL
                  for (int i = 1; i < 8; ++i) {
                    if (buckets[i] != buckets[i - 1]) {
                      own_bins[buckets[i - 1] * 32] += sum;
                      sum = 0;
                    }
                    sum += gradients.at[i];
                  }
                  own_bins[buckets[7] * 32] += sum;
                });
      }
      if (bias.dtime == nullptr) continue;
      if (only >= 0) own_bins[only * 32] += unit_sum;
      if (times.usable == 0) {
        add_exact_times(bias, tile, first_query, first_key, unit);
      }
    }
    if (bias.dposition == nullptr) continue;
    // Eight threads have parts of each diagonal.
    __syncthreads();
    auto* parts = reinterpret_cast<float*>(unit);
    TGR_UNROLL
    for (int i = 0; i < 8; ++i) {
      parts[i * 2 * kUnit + thread] = low[i];
      parts[i * 2 * kUnit + kUnit + thread] = high[i];
    }
    __syncthreads();
    for (int at = thread; at < 2 * kUnit; at += kThreads) {
      float all = 0;
      TGR_UNROLL
      for (int i = 0; i < 8; ++i) {
        if (at >= i) all += parts[i * 2 * kUnit + at - i];
      }
      const int offset = diagonal * kUnit + at - (kUnit - 1);
      if (offset >= 0 && offset < bias.position_length && all != 0) {
        atomicAdd(bias.dposition - offset, all * bias.gradient_scale);
      }
    }
  }
  if (bias.dtime == nullptr) return;
  __syncthreads();
  for (int bucket = thread; bucket < kBinRows; bucket += kThreads) {
    float all = 0;
    for (int copy = 0; copy < kThreads; ++copy) {
      all += bins[(copy / 32 * kBinRows + bucket) * 32 + (copy + thread) % 32];
    }
    if (all != 0) atomicAdd(bias.dtime + bucket, all * bias.gradient_scale);
  }
}

}  // namespace

void launch_table_gradients(const PairArgs& pairs, const BiasArgs& bias, const AttentionItem* tiles,
                            int num_tiles, cudaStream_t stream) {
  static const int blocks = resident_blocks(table_gradients_kernel, kThreads, kBinBytes);
  table_gradients_kernel<<<blocks, kThreads, kBinBytes, stream>>>(pairs, bias, tiles, num_tiles);
  check(cudaGetLastError(), "attention table gradients");
}

}  // namespace turbogr::cuda
