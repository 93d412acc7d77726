#include "turbogr/cuda/attention_diagonals.cuh"
#include "turbogr/cuda/attention_pair_times.cuh"
#include "turbogr/cuda/attention_pairs.cuh"
#include "turbogr/cuda/check.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
using Walks = DiagonalWalks<8, 4>;
constexpr int kHalfLines = kUnit / 2;
constexpr int kHalfBytes = kUnitBytes / 2;
constexpr int kZeroBytes = 4 * kThreads;
constexpr int kBlocks = 6;  // a multiprocessor
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
};

// A block takes a walk, a warp one unit at a time, a lane one key of 32: it makes the bias with all
// 64 queries. Limited by bandwidth.
__global__ void __launch_bounds__(kThreads, kBlocks)
    pair_bias_kernel(PairArgs pairs, BiasArgs bias, Walks walks) {
  const DiagonalWalk walk = walks[static_cast<int>(blockIdx.x)];
  const AttentionItem tile = walk.tile;
  const int diagonal = tile.block;
  const int query_tiles = walk.end_query_tile();
  if (walk.first_query_tile() >= query_tiles) return;
  // Half the weight of query - key = 64 diagonal - 63 and on, from each of four alignments.
  __shared__ alignas(16) float position[4][kRow];
  __shared__ ShortGapTables tables;
  __shared__ alignas(128) char zeros[kZeroBytes];
  __shared__ WarpSpace spaces[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  WarpSpace& space = spaces[thread / 32];

  {
    const int offset = kUnit - 1 - thread - kUnit * diagonal;
    const float half =
        bias.position != nullptr
            ? 0.5f * __ldg(bias.position + min(max(offset, 1 - bias.position_length), 0))
            : 0.f;
    TGR_UNROLL
    for (int shift = 0; shift < 4; ++shift) {
      if (thread >= shift) position[shift][thread - shift] = half;
    }
  }
  if (bias.time != nullptr) tables.fill(bias.time, 0.5f, thread, kThreads);
  if (pairs.gradients != nullptr) {
    reinterpret_cast<float*>(zeros)[thread] = 0;
    fence_async_proxy();
  }
  const bool usable = bias.time != nullptr && __ldg(bias.usable + tile.sequence) != 0;
  const int history_end =
      tile.length -
      (bias.num_targets != nullptr ? static_cast<int>(__ldg(bias.num_targets + tile.sequence)) : 0);
  const int window = static_cast<int>(min(bias.window, static_cast<std::int64_t>(tile.length)));
  const auto sees = [&](int q, int k) {
    if (q >= tile.length || k > q) return false;
    if (k >= history_end) return k == q;
    return window == 0 || k >= min(q, history_end) - window;
  };
  __syncthreads();

  for (int query_tile = walk.first_query_tile() + thread / 32 * walk.parts;
       query_tile < query_tiles; query_tile += kWarps * walk.parts) {
    const int first_query = query_tile * kUnit;
    const int first_key = first_query - diagonal * kUnit;
    const bool masked = diagonal == 0 || first_query + kUnit > history_end || window > 0;
    const std::int64_t offset =
        unit_offset(pairs, tile.sequence, query_tile, query_tile - diagonal);
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
      const Line to{reinterpret_cast<const float4*>(position[(kUnit - 1 - line) % 4]) +
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
  const Walks walks{tiles};
  pair_bias_kernel<<<static_cast<unsigned>(walks.count()), kThreads, 0, stream>>>(pairs, bias,
                                                                                  walks);
  check(cudaGetLastError(), "attention bias");
}

}  // namespace turbogr::cuda
