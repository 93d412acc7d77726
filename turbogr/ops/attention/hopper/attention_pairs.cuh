// What belongs to a pair of tokens and to no head: the bias with the mask in it, and the gradients
// of scores summed over heads, from which those of the bias tables are made. They lie in memory as
// units of 64 keys x 64 queries in the form that a tile has in shared memory: a key is a line of
// 128 bytes, its queries two bytes each, in swizzled pieces of 16 bytes. So one copy brings a tile,
// one adds it, all heads share it, and the attention kernels know nothing of tables and times.
#pragma once

#include <cuda_fp16.h>

#include "turbogr/cuda/hopper.cuh"
#include "turbogr/ops/attention/hopper/attention_args.cuh"

namespace turbogr::cuda {

inline constexpr int kLineBytes = kUnit * 2;

// Half of a bias that no score brings back: SiLU and its derivative are then exactly 0.
inline constexpr float kHidden = -30000.f;

__device__ __forceinline__ PairRange load_range(const PairArgs& pairs, int sequence) {
  const int4 range = __ldg(reinterpret_cast<const int4*>(pairs.ranges + sequence));
  return {range.x, range.y, range.z, 0};
}

// In a band of queries, the unit of the sequence's tile of queries and of keys, keys <= queries.
// Neighbours along the keys lie side by side.
__device__ __forceinline__ int query_band_unit(const PairArgs& pairs, int sequence, int query_tile,
                                               int key_tile) {
  return unit_by_queries(__ldg(&pairs.ranges[sequence].start), query_tile, key_tile);
}
// Bytes to it, in a band of either kind.
__device__ __forceinline__ std::int64_t unit_offset(const PairArgs& pairs, const PairRange& range,
                                                    int query_tile, int key_tile) {
  const int unit = pairs.band == PairBand::kOfKeys
                       ? unit_by_keys(range, query_tile, key_tile)
                       : unit_by_queries(range.start, query_tile, key_tile);
  return static_cast<std::int64_t>(unit) * kUnitBytes;
}

// In a band of keys, the units of one tile of them, query tile after query tile from the keys' own.
struct UnitWalk {
  std::int64_t offset = 0;
  int row = 0;    // of the band
  int width = 0;  // tiles of keys in the band

  __device__ __forceinline__ void advance() {
    ++row;
    offset += min(row, width) * kUnitBytes;
  }
};
template <bool kThere>
__device__ __forceinline__ UnitWalk walk_units(const PairArgs& pairs, int sequence, int key_tile) {
  if constexpr (kThere) {
    const PairRange range = load_range(pairs, sequence);
    return {static_cast<std::int64_t>(unit_by_keys(range, key_tile, key_tile)) * kUnitBytes,
            key_tile - range.first, range.end - range.first};
  } else {
    return {};
  }
}

// Of a line's eight pieces of 16 bytes, where piece `piece` lies.
__device__ __forceinline__ int piece_offset(int line, int piece) {
  return line * kLineBytes + (piece ^ (line & 7)) * 16;
}

// Sources of a tile's halved bias, in the registers of a product: registers 4 step to 4 step + 3
// belong to columns 16 step to 16 step + 15.
struct NoBias {
  static constexpr bool kThere = false;
};
// From shared memory: `at` is the address of this lane's first piece.
struct SharedBias {
  static constexpr bool kThere = true;
  SharedAddress at;
  __device__ __forceinline__ void blocks(int step, std::uint32_t (&r)[4]) const {
    load_blocks(at ^ (32 * step), r);
  }
};
// The same where rows are queries. `line`: the address of this lane's piece of the first 16 keys.
struct TransposedBias {
  static constexpr bool kThere = true;
  std::uint32_t line;
  __device__ __forceinline__ void blocks(int step, std::uint32_t (&r)[4]) const {
    load_blocks_transposed(line + step * 16 * kLineBytes, r);
  }
};
// Loaded before.
template <int N>
struct RegisterBias {
  static constexpr bool kThere = true;
  const std::uint32_t (&packed)[N];
  __device__ __forceinline__ void blocks(int step, std::uint32_t (&r)[4]) const {
    TGR_UNROLL
    for (int i = 0; i < 4; ++i) r[i] = packed[4 * step + i];
  }
};

// From scores to half the argument of SiLU.
template <int N, class Bias>
__device__ __forceinline__ void add_bias(float (&scores)[N], float half_alpha, const Bias& bias) {
  if constexpr (Bias::kThere) {
    TGR_UNROLL
    for (int step = 0; step < N / 8; ++step) {
      std::uint32_t packed[4];
      bias.blocks(step, packed);
      TGR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float2 two = __half22float2(*reinterpret_cast<const __half2*>(packed + i));
        scores[8 * step + 2 * i] = fmaf(half_alpha, scores[8 * step + 2 * i], two.x);
        scores[8 * step + 2 * i + 1] = fmaf(half_alpha, scores[8 * step + 2 * i + 1], two.y);
      }
    }
  } else {
    TGR_UNROLL
    for (int i = 0; i < N; ++i) scores[i] *= half_alpha;
  }
}

// The tiles of queries of a batch: those of the long sequence number b begin at offsets[b] /
// kPaddedRows + b. `batch` is as many long ones as there can be; the tiles of others are empty.
struct PairTiles {
  const AttentionItem* tiles;
  int count;
  const std::int64_t* offsets;
  int batch;
};

// Fills every unit of a band with its bias.
void launch_pair_bias(const PairArgs& pairs, const BiasArgs& bias, const PairTiles& tiles,
                      cudaStream_t stream);

// Adds a band to the sums of the tables' gradients. `next_walk`: two counters, zero before and
// after.
void launch_table_gradients(const PairArgs& pairs, const BiasArgs& bias, const PairTiles& tiles,
                            int heads, int* next_walk, cudaStream_t stream);

}  // namespace turbogr::cuda
