// Units of the gradients of scores on their way into the gradients of tables
// (attention_table_gradients.cu): a walk along a diagonal of a sequence after the other, each unit
// with the times of its tokens.
#pragma once

#include "turbogr/ops/attention/hopper/attention_diagonals.cuh"
#include "turbogr/ops/attention/hopper/attention_head_sums.cuh"
#include "turbogr/ops/attention/hopper/attention_pair_times.cuh"
#include "turbogr/ops/attention/hopper/attention_pairs.cuh"

namespace turbogr::cuda::table_gradients {

using Walks = DiagonalWalks<16, 8>;

struct Stage {
  alignas(128) char unit[kUnitBytes];
  alignas(16) std::uint32_t keys[kUnit];
  alignas(16) std::uint32_t queries[kUnit];
  AttentionItem tile;
  int query_tile;  // -1: there are no more
  bool last;       // of its walk
};

// Brings units, one walk after the other; one thread of the block asks.
struct UnitSource {
  const PairArgs& pairs;
  const BiasArgs& bias;
  const Walks& walks;
  int* next_walk;
  DiagonalWalk walk = {};
  PairRange range = {};
  int query_tile = 0;
  int query_tiles = 0;
  // Asked for a walk ahead, so that nothing waits.
  DiagonalWalk ahead = {};
  int number = 0;
  int after = 0;

  __device__ void ask(int the_number) {
    number = the_number;
    if (number < walks.count()) ahead = walks[number];
    after = static_cast<int>(gridDim.x) + atomicAdd(next_walk, 1);
  }
  __device__ void fill(Stage& stage, std::uint64_t* arrived) {
    while (query_tile >= query_tiles && number < walks.count()) {
      walk = ahead;
      range = load_range(pairs, walk.tile.sequence);
      const auto tiles = walk.query_tiles(pairs, range);
      query_tile = tiles.first;
      query_tiles = tiles.end;
      ask(after);
    }
    if (query_tile >= query_tiles) {
      stage.query_tile = -1;
      barrier_arrive(arrived);
      return;
    }
    const AttentionItem& tile = walk.tile;
    const int key_tile = query_tile - tile.block;
    stage.tile = tile;
    stage.query_tile = query_tile;
    stage.last = query_tile + walk.parts >= query_tiles;
    const bool times = bias.time_sums.words != nullptr;
    barrier_expect(arrived, kUnitBytes + (times ? 2 * kUnit * 4 : 0));
    load_bytes(stage.unit, pairs.gradients + unit_offset(pairs, range, query_tile, key_tile),
               kUnitBytes, arrived);
    if (times) {
      const int start = padded_start(tile);
      load_bytes(stage.keys, bias.key_times + start + key_tile * kUnit, kUnit * 4, arrived);
      load_bytes(stage.queries, bias.query_times + start + query_tile * kUnit, kUnit * 4, arrived);
    }
    query_tile += walk.parts;
  }
};

// From counts (attention_head_sums.cuh) to bf16, in place: this thread's line.
__device__ __forceinline__ void decode_line(Stage& stage, const PairArgs& pairs, int heads) {
  const AttentionItem& tile = stage.tile;
  const int padded_tile = tile.first_row / kPaddedRows + tile.sequence + stage.query_tile;
  const HeadSumDecoder decode(HeadSumScale(heads, __ldg(pairs.largest + padded_tile)), heads);
  auto* line = reinterpret_cast<uint4*>(stage.unit + threadIdx.x * kLineBytes);
  TGR_UNROLL
  for (int i = 0; i < 8; ++i) {
    uint4& piece = line[(i + threadIdx.x) % 8];
    piece = make_uint4(decode(piece.x), decode(piece.y), decode(piece.z), decode(piece.w));
  }
  __syncwarp();
}

}  // namespace turbogr::cuda::table_gradients
