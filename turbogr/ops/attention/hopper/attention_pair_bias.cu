#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/attention_diagonals.cuh"
#include "turbogr/ops/attention/hopper/attention_pair_times.cuh"
#include "turbogr/ops/attention/hopper/attention_pairs.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
using Walks = DiagonalWalks<8, 4>;
constexpr int kHalfLines = kUnit / 2;
constexpr int kHalfBytes = kUnitBytes / 2;
// Floats from one alignment of the position row to the next: eight lanes read eight banks.
constexpr int kRow = 2 * kUnit + 8;

// A key's walk along the queries, eight at a time: most eights lie in the bucket in which the ones
// before them lay.
struct BucketWalk {
  BucketSearch key;
  std::uint32_t end = 0;  // queries from here on are in a later bucket
  int bucket = 0;
  float weight = 0;

  __device__ __forceinline__ void stand(const ShortGapTables& tables, int at) {
    bucket = at;
    weight = tables.weight[at];
    end = key.start_of(tables, at + 1);
  }
  // Adds the weights of eight queries (in shared memory), the last of them not before `end`.
  __device__ __forceinline__ void pass(const ShortGapTables& tables, const std::uint32_t* queries,
                                       float (&values)[8]) {
    alignas(16) std::uint32_t eight[8];
    TGR_UNROLL
    for (int i = 0; i < 2; ++i) {
      reinterpret_cast<uint4*>(eight)[i] = reinterpret_cast<const uint4*>(queries)[i];
    }
    const int last = key.bucket_of(tables, eight[7]);
    if (last == bucket + 1) {
      const float after = tables.weight[last];
      TGR_UNROLL
      for (int i = 0; i < 8; ++i) values[i] += eight[i] >= end ? after : weight;
    } else {
      TGR_UNROLL
      for (int i = 0; i < 8; ++i) values[i] += tables.weight[key.bucket_of(tables, eight[i])];
    }
    stand(tables, last);
  }
};

// What a warp has to itself.
struct WarpSpace {
  alignas(128) char lines[2][kHalfBytes];  // being filled, being written to memory
  alignas(16) std::uint32_t queries[kUnit];
};

// A block takes a walk, a warp one unit at a time, a lane one key of 32: it makes the bias with all
// 64 queries. Limited by bandwidth, and at the end by units that lie near the diagonal.
__global__ void __launch_bounds__(kThreads)
    pair_bias_kernel(PairArgs pairs, BiasArgs bias, Walks walks) {
  const DiagonalWalk walk = walks[static_cast<int>(blockIdx.x)];
  const AttentionItem tile = walk.tile;
  const int diagonal = tile.block;
  if (walk.query_tiles().empty()) return;  // with no need to wait for more of memory
  const PairRange range = load_range(pairs, tile.sequence);
  const auto query_tiles = walk.query_tiles(pairs, range);
  if (query_tiles.empty()) return;
  // Half the weight of query - key = 64 diagonal - 63 and on, from each of four alignments.
  __shared__ alignas(16) float position[4][kRow];
  __shared__ ShortGapTables tables;
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
  const bool usable = bias.time != nullptr && __ldg(bias.usable + tile.sequence) != 0;
  const int history_end =
      tile.length -
      (bias.num_targets != nullptr
           ? static_cast<int>(__ldg(bias.num_targets + __ldg(bias.long_sequences + tile.sequence)))
           : 0);
  const int window = static_cast<int>(min(bias.window, static_cast<std::int64_t>(tile.length)));
  const auto sees = [&](int q, int k) {
    if (q >= tile.length || k > q) return false;
    if (k >= history_end) return k == q;
    return window == 0 || k >= min(q, history_end) - window;
  };
  __syncthreads();

  for (int query_tile = query_tiles.first + thread / 32 * walk.parts; query_tile < query_tiles.end;
       query_tile += kWarps * walk.parts) {
    const int first_query = query_tile * kUnit;
    const int first_key = first_query - diagonal * kUnit;
    const bool masked = diagonal == 0 || first_query + kUnit > history_end || window > 0;
    const std::int64_t offset = unit_offset(pairs, range, query_tile, query_tile - diagonal);
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
      const auto* row = reinterpret_cast<const float4*>(position[(kUnit - 1 - line) % 4]) +
                        (kUnit - 1 - line) / 4;
      char* to = space.lines[half] + lane * kLineBytes;
      BucketWalk times{{half == 0 ? keys[0] : keys[1]}};
      if (usable) {
        times.stand(tables, times.key.bucket_of(tables, space.queries[0]));
      } else if (bias.time == nullptr) {
        times.end = ~0u;
      }
      if (lane == 0) wait_stores_read<1>();
      __syncwarp();
#pragma unroll 1
      for (int piece = 0; piece < 8; ++piece) {
        alignas(16) float values[8];
        TGR_UNROLL
        for (int i = 0; i < 2; ++i) {
          reinterpret_cast<float4*>(values)[i] = row[2 * piece + i];
        }
        const std::uint32_t* queries = space.queries + 8 * piece;
        if (queries[7] < times.end) {
          TGR_UNROLL
          for (int i = 0; i < 8; ++i) values[i] += times.weight;
        } else if (usable) {
          times.pass(tables, queries, values);
        } else {
          const std::int64_t key_time = exact_key_time(bias, tile, key);
          TGR_UNROLL
          for (int i = 0; i < 8; ++i) {
            const std::int64_t query_time =
                exact_query_time(bias, tile, first_query + 8 * piece + i);
            values[i] += 0.5f * __ldg(bias.time + exact_bucket(tables, query_time, key_time));
          }
        }
        if (masked) {
          TGR_UNROLL
          for (int i = 0; i < 8; ++i) {
            if (!sees(first_query + 8 * piece + i, key)) values[i] = kHidden;
          }
        }
        uint4 packed;
        auto* two = reinterpret_cast<__half2*>(&packed);
        TGR_UNROLL
        for (int i = 0; i < 4; ++i) two[i] = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
        *reinterpret_cast<uint4*>(to + (piece ^ (line & 7)) * 16) = packed;
      }
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) {
        store_bytes(pairs.bias + offset + half * kHalfBytes, shared_address(space.lines[half]),
                    kHalfBytes);
        commit_stores();
      }
    }
  }
  if (lane == 0) wait_stores_read<0>();
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
