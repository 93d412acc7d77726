#include "turbogr/cuda/attention_pair_times.cuh"
#include "turbogr/cuda/attention_pairs.cuh"
#include "turbogr/cuda/attention_tile.cuh"
#include "turbogr/cuda/check.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kHalfLines = kUnit / 2;
constexpr int kHalfBytes = kUnitBytes / 2;
constexpr int kZeroBytes = 8 * kThreads;
constexpr int kTurn = 61;
// Floats from one alignment of the position row to the next: eight lanes read eight banks.
constexpr int kRow = 2 * kUnit + 8;

struct EightTimes {
  alignas(16) std::uint32_t at[8];
  __device__ __forceinline__ explicit EightTimes(const std::uint32_t* shared) {
    TGR_UNROLL
    for (int i = 0; i < 2; ++i) {
      reinterpret_cast<uint4*>(at)[i] = reinterpret_cast<const uint4*>(shared)[i];
    }
  }
};

// A key's line of a unit, made eight queries at a time.
struct Line {
  const float4* position;  // halved weights of its queries
  char* to;
  int swizzle;

  // add(piece, values) adds what depends on times; kAtOnce pieces are under way together.
  template <int kAtOnce, class Add>
  __device__ __forceinline__ void fill(Add add) const {
#pragma unroll 1
    for (int first = 0; first < 8; first += kAtOnce) {
      alignas(16) float values[kAtOnce][8];
      TGR_UNROLL
      for (int i = 0; i < 2 * kAtOnce; ++i) {
        reinterpret_cast<float4*>(values)[i] = position[2 * first + i];
      }
      TGR_UNROLL
      for (int i = 0; i < kAtOnce; ++i) add(first + i, values[i]);
      TGR_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        uint4 packed;
        auto* two = reinterpret_cast<__half2*>(&packed);
        TGR_UNROLL
        for (int j = 0; j < 4; ++j) {
          two[j] = __floats2half2_rn(values[i][2 * j], values[i][2 * j + 1]);
        }
        *reinterpret_cast<uint4*>(to + ((first + i) ^ swizzle) * 16) = packed;
      }
    }
  }
};

// What a warp has to itself.
struct WarpSpace {
  alignas(128) char lines[2][kHalfBytes];  // being filled, being written to memory
  alignas(16) std::uint32_t queries[kUnit];
  // Half the weights of query - key from the least on, from each of four alignments.
  alignas(16) float position[4][kRow];
};

// Units of the tiles of queries before this one.
__device__ __forceinline__ int units_before(int query_tile) {
  return query_tile * (query_tile + 1) / 2;
}

// The sequence and the tile of queries that a unit belongs to; leaves the unit's number among the
// sequence's. By the whole warp.
__device__ __forceinline__ AttentionItem find_unit(const PairArgs& pairs, const PairTiles& tiles,
                                                   int& unit) {
  int sequence = 0;
  for (int end = tiles.batch; end - sequence > 1;) {
    const int step = (end - sequence + 31) / 32;
    const int at = sequence + static_cast<int>(threadIdx.x) % 32 * step;
    const bool reached = at < end && __ldg(pairs.starts + at) <= unit;
    sequence += (__popc(__ballot_sync(~0u, reached)) - 1) * step;
    end = min(end, sequence + step);
  }
  unit -= __ldg(pairs.starts + sequence);
  const float square = 8.f * static_cast<float>(unit) + 1.f;
  int query_tile = static_cast<int>(0.5f * (square * rsqrtf(square) - 1.f));
  while (units_before(query_tile) > unit) --query_tile;
  while (units_before(query_tile + 1) <= unit) ++query_tile;
  const std::int64_t first_row = __ldg(tiles.offsets + sequence);
  return {static_cast<int>(first_row),
          static_cast<int>(__ldg(tiles.offsets + sequence + 1) - first_row), sequence,
          static_cast<std::uint16_t>(query_tile), 0};
}

// A warp takes a unit at a time, a lane one key of 32: it makes the bias with all 64 queries.
// Limited by bandwidth.
__global__ void __launch_bounds__(kThreads)
    pair_bias_kernel(PairArgs pairs, BiasArgs bias, PairTiles tiles) {
  __shared__ ShortGapTables tables;
  __shared__ alignas(128) char zeros[kZeroBytes];
  __shared__ WarpSpace spaces[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  WarpSpace& space = spaces[thread / 32];
  if (bias.time != nullptr) tables.fill(bias.time, 0.5f, thread, kThreads);
  if (pairs.gradients != nullptr) {
    reinterpret_cast<float2*>(zeros)[thread] = make_float2(0, 0);
    fence_async_proxy();
  }
  __syncthreads();

  const int total = __ldg(pairs.starts + tiles.batch - 1) +
                    static_cast<int>(units_of(__ldg(tiles.offsets + tiles.batch) -
                                              __ldg(tiles.offsets + tiles.batch - 1)));
  const int warps = kWarps * static_cast<int>(gridDim.x);
  int place = thread / 32 * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  for (int begin = 0; begin < total; begin += warps) {
    int unit = begin + place;
    // Another place each time: sequences are alike, and units near their diagonals take longer.
    place = (place + kTurn) % warps;
    if (unit >= total) continue;
    const std::int64_t offset = static_cast<std::int64_t>(unit) * kUnitBytes;
    const AttentionItem tile = find_unit(pairs, tiles, unit);
    const int first_query = tile.block * kUnit;
    const int first_key = (unit - units_before(tile.block)) * kUnit;
    const bool usable = bias.time != nullptr && __ldg(bias.usable + tile.sequence) != 0;
    const int history_end =
        tile.length - (bias.num_targets != nullptr
                           ? static_cast<int>(__ldg(bias.num_targets + tile.sequence))
                           : 0);
    const int window = static_cast<int>(min(bias.window, static_cast<std::int64_t>(tile.length)));
    const auto sees = [&](int q, int k) {
      if (q >= tile.length || k > q) return false;
      if (k >= history_end) return k == q;
      return window == 0 || k >= min(q, history_end) - window;
    };
    const bool masked = first_query == first_key || first_query + kUnit > history_end || window > 0;

    TGR_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int at = lane + 32 * i;
      const int from = kUnit - 1 - at - (first_query - first_key);
      const float half =
          bias.position != nullptr
              ? 0.5f * __ldg(bias.position + min(max(from, 1 - bias.position_length), 0))
              : 0.f;
      TGR_UNROLL
      for (int shift = 0; shift < 4; ++shift) {
        if (at >= shift) space.position[shift][at - shift] = half;
      }
    }
    std::uint32_t keys[2] = {};
    TGR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int i = padded_start(tile) + lane + kHalfLines * half;
      if (usable) keys[half] = __ldg(bias.key_times + i + first_key);
      space.queries[lane + kHalfLines * half] =
          usable ? __ldg(bias.query_times + i + first_query) : 0;
    }
    __syncwarp();
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const int line = lane + kHalfLines * half;
      const int key = first_key + line;
      const Line to{reinterpret_cast<const float4*>(space.position[(kUnit - 1 - line) % 4]) +
                        (kUnit - 1 - line) / 4,
                    space.lines[half] + lane * kLineBytes, line & 7};
      wait_stores_read<1>();
      __syncwarp();

      // Of the 32 keys the last one has the first bucket, and the first one the last.
      const BucketSearch search{half == 0 ? keys[0] : keys[1]};
      int first = 0;
      int last = 0;
      if (usable) {
        first = __shfl_sync(~0u, search.bucket_of(tables, space.queries[0]), 31);
        last = __shfl_sync(~0u, search.bucket_of(tables, space.queries[kUnit - 1]), 0);
      }
      const bool times = bias.time != nullptr;
      if (!masked && usable == times && last - first <= 1) {
        const float before = times ? tables.weight[first] : 0.f;
        if (first == last) {
          to.fill<4>([&](int, float(&values)[8]) {
            TGR_UNROLL
            for (int i = 0; i < 8; ++i) values[i] += before;
          });
        } else {
          const float after = tables.weight[last];
          const std::uint32_t start = search.start_of(tables, last);
          to.fill<2>([&](int piece, float(&values)[8]) {
            const EightTimes queries(space.queries + 8 * piece);
            TGR_UNROLL
            for (int i = 0; i < 8; ++i) values[i] += queries.at[i] >= start ? after : before;
          });
        }
      } else {
        to.fill<1>([&](int piece, float(&values)[8]) {
          const int query = first_query + 8 * piece;
          if (usable) {
            const EightTimes queries(space.queries + 8 * piece);
            TGR_UNROLL
            for (int i = 0; i < 8; ++i) {
              values[i] += tables.weight[search.bucket_of(tables, queries.at[i])];
            }
          } else if (times) {
            TGR_UNROLL
            for (int i = 0; i < 8; ++i) {
              values[i] += 0.5f * __ldg(bias.time + exact_bucket(bias, tile, query + i, key));
            }
          }
          TGR_UNROLL
          for (int i = 0; i < 8; ++i) {
            if (masked && !sees(query + i, key)) values[i] = kHidden;
          }
        });
      }
      fence_async_proxy();
      __syncwarp();
      const std::int64_t half_offset = offset + half * kHalfBytes;
      if (lane == 0) store_bytes(pairs.bias + half_offset, space.lines[half], kHalfBytes);
      if (pairs.gradients != nullptr && lane < kHalfBytes / kZeroBytes) {
        store_bytes(pairs.gradients + half_offset + lane * kZeroBytes, zeros, kZeroBytes);
      }
      commit_stores();
    }
  }
  wait_stores_read<0>();
}

}  // namespace

void launch_pair_bias(const PairArgs& pairs, const BiasArgs& bias, const PairTiles& tiles,
                      cudaStream_t stream) {
  static const int blocks = resident_blocks(pair_bias_kernel, kThreads, 0);
  pair_bias_kernel<<<blocks, kThreads, 0, stream>>>(pairs, bias, tiles);
  check(cudaGetLastError(), "attention bias");
}

}  // namespace turbogr::cuda
