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

inline constexpr int kUnit = 64;
inline constexpr int kUnitBytes = kUnit * kUnit * 2;
inline constexpr int kLineBytes = kUnit * 2;

// Half of a bias that no score brings back: SiLU and its derivative are then exactly 0.
inline constexpr float kHidden = -30000.f;

__host__ __device__ constexpr std::int64_t units_of(std::int64_t length) {
  const std::int64_t tiles = (length + kUnit - 1) / kUnit;
  return tiles * (tiles + 1) / 2;
}

// The unit of the sequence's tile of queries and of keys, keys <= queries. Neighbours along the
// keys lie side by side.
__device__ __forceinline__ int unit_number(const PairArgs& pairs, int sequence, int query_tile,
                                           int key_tile) {
  return __ldg(pairs.starts + sequence) + query_tile * (query_tile + 1) / 2 + key_tile;
}
// Bytes to it.
__device__ __forceinline__ std::int64_t unit_offset(const PairArgs& pairs, int sequence,
                                                    int query_tile, int key_tile) {
  return static_cast<std::int64_t>(unit_number(pairs, sequence, query_tile, key_tile)) * kUnitBytes;
}

// The units of one tile of keys, query tile after query tile from the keys' own.
struct UnitWalk {
  std::int64_t offset = 0;
  int query_tile = 0;

  __device__ __forceinline__ void advance() {
    ++query_tile;
    offset += query_tile * kUnitBytes;
  }
};
template <bool kThere>
__device__ __forceinline__ UnitWalk walk_units(const PairArgs& pairs, int sequence, int key_tile) {
  if constexpr (kThere) {
    return {unit_offset(pairs, sequence, key_tile, key_tile), key_tile};
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

// Fills every unit of a batch with its bias.
void launch_pair_bias(const PairArgs& pairs, const BiasArgs& bias, const PairTiles& tiles,
                      cudaStream_t stream);

// Adds to the sums of the tables' gradients. `next_walk`: two counters, zero before and after.
void launch_table_gradients(const PairArgs& pairs, const BiasArgs& bias, const PairTiles& tiles,
                            int heads, int* next_walk, cudaStream_t stream);

}  // namespace turbogr::cuda
