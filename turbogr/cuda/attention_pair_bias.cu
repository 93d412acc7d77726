#include "turbogr/cuda/attention_pair_times.cuh"
#include "turbogr/cuda/attention_pairs.cuh"
#include "turbogr/cuda/check.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kSplit = 4;  // blocks a tile of queries

// A block has a tile of queries and makes its bias with every kSplit-th tile of keys. A thread has
// eight queries, and of every 16 keys one: one piece of 16 bytes. Limited by bandwidth.
__global__ void __launch_bounds__(kThreads)
    pair_bias_kernel(PairArgs pairs, BiasArgs bias, const AttentionItem* tiles) {
  const AttentionItem tile = tiles[blockIdx.x];
  if (tile.length == 0) return;
  // Half the weight of query - key = first - 63, from each of four alignments.
  __shared__ alignas(16) float position[4][2 * kUnit + 4];
  __shared__ PairTimes times;
  __shared__ ShortGapTables tables;
  const int thread = static_cast<int>(threadIdx.x);
  const int piece = thread % 8;
  const int first_query = tile.block * kUnit;
  const int query = first_query + 8 * piece;
  if (bias.time != nullptr) tables.fill(bias.time, 0.5f, thread, kThreads);
  const int history_end =
      tile.length -
      (bias.num_targets != nullptr ? static_cast<int>(__ldg(bias.num_targets + tile.sequence)) : 0);
  const int window = static_cast<int>(min(bias.window, static_cast<std::int64_t>(tile.length)));
  const auto sees = [&](int q, int k) {
    if (q >= tile.length || k > q) return false;
    if (k >= history_end) return k == q;
    return window == 0 || k >= min(q, history_end) - window;
  };

  for (int key_tile = static_cast<int>(blockIdx.y); key_tile <= tile.block; key_tile += kSplit) {
    const int first_key = key_tile * kUnit;
    __syncthreads();
    if (bias.position != nullptr) {
      const int offset = first_key - first_query + (kUnit - 1) - thread;
      const float half =
          0.5f * __ldg(bias.position + min(max(offset, 1 - bias.position_length), 0));
      TGR_UNROLL
      for (int shift = 0; shift < 4; ++shift) {
        if (thread >= shift) position[shift][thread - shift] = half;
      }
    }
    if (bias.time != nullptr) times.load(bias, tile, first_query, first_key);
    __syncthreads();
    const bool masked = key_tile == tile.block || first_query + kUnit > history_end || window > 0;
    const int only = bias.time != nullptr ? times.only_bucket(tables) : -1;
    const float only_weight = only >= 0 ? tables.weight[only] : 0.f;
    const EightTimes eight(times, piece);
    char* unit = pairs.bias + unit_offset(pairs, tile.sequence, tile.block, key_tile);
#pragma unroll 1
    for (int round = 0; round < 4; ++round) {
      const int line = thread / 8 + 16 * round;
      const int key = first_key + line;
      alignas(16) float values[8];
      if (bias.position != nullptr) {
        const int at = 8 * piece - line + kUnit - 1;
        const auto* from = reinterpret_cast<const float4*>(position[at % 4] + at / 4 * 4);
        *reinterpret_cast<float4*>(values) = from[0];
        *reinterpret_cast<float4*>(values + 4) = from[1];
      } else {
        TGR_UNROLL
        for (int i = 0; i < 8; ++i) values[i] = 0;
      }
      if (bias.time == nullptr || only >= 0) {
        TGR_UNROLL
        for (int i = 0; i < 8; ++i) values[i] += only_weight;
      } else if (times.usable != 0) {
        eight.buckets(
            tables, times.keys[line],
            [&](int first, int last, auto beyond) {
              const float before = tables.weight[first];
              const float after = tables.weight[last];
              TGR_UNROLL
              for (int i = 0; i < 8; ++i) values[i] += beyond(i) ? after : before;
            },
            [&](const int(&buckets)[8]) {
              TGR_UNROLL
              for (int i = 0; i < 8; ++i) values[i] += tables.weight[buckets[i]];
            });
      } else {
        TGR_UNROLL
        for (int i = 0; i < 8; ++i) {
          values[i] += 0.5f * __ldg(bias.time + exact_bucket(bias, tile, query + i, key));
        }
      }
      if (masked) {
        TGR_UNROLL
        for (int i = 0; i < 8; ++i) {
          if (!sees(query + i, key)) values[i] = kHidden;
        }
      }
      uint4 packed;
      auto* two = reinterpret_cast<__half2*>(&packed);
      TGR_UNROLL
      for (int i = 0; i < 4; ++i) two[i] = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
      *reinterpret_cast<uint4*>(unit + piece_offset(line, piece)) = packed;
    }
    if (pairs.gradients != nullptr) {
      char* sums = pairs.gradients + (unit - pairs.bias);
      TGR_UNROLL
      for (int round = 0; round < 4; ++round) {
        *reinterpret_cast<uint4*>(sums + (thread + kThreads * round) * 16) = make_uint4(0, 0, 0, 0);
      }
    }
  }
}

}  // namespace

void launch_pair_bias(const PairArgs& pairs, const BiasArgs& bias, const AttentionItem* tiles,
                      int num_tiles, cudaStream_t stream) {
  pair_bias_kernel<<<dim3(static_cast<unsigned>(num_tiles), kSplit), kThreads, 0, stream>>>(
      pairs, bias, tiles);
  check(cudaGetLastError(), "attention bias");
}

}  // namespace turbogr::cuda
