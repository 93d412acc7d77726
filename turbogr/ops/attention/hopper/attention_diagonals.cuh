// Work over all units of a batch, cut into walks: every parts-th unit of a diagonal of a sequence's
// matrix of units, which all have the same differences of positions. The diagonals nearest to the
// middle have times in many buckets: they come first and in smaller pieces.
#pragma once

#include "turbogr/ops/attention/hopper/attention_pairs.cuh"

namespace turbogr::cuda {

inline constexpr int kNearDiagonals = 2;

struct DiagonalWalk {
  AttentionItem tile;  // its block: the diagonal
  int part;
  int parts;
  int diagonal;  // that was asked for, kNearDiagonals: any farther one

  // Units begin at first_query_tile and end before end_query_tile.
  __device__ __forceinline__ int first_query_tile() const { return tile.block + part; }
  __device__ __forceinline__ int end_query_tile() const {
    if (min(static_cast<int>(tile.block), kNearDiagonals) != diagonal) return 0;
    return (tile.length + kUnit - 1) / kUnit;
  }
};

template <int kNearParts, int kFarParts>
struct DiagonalWalks {
  static constexpr int kOfSequence = kNearDiagonals * kNearParts;
  PairTiles all;

  __host__ __device__ int count() const { return all.batch * kOfSequence + all.count * kFarParts; }
  __device__ __forceinline__ DiagonalWalk operator[](int number) const {
    const int far = number - all.batch * kOfSequence;
    if (far >= 0) return {all.tiles[far % all.count], far / all.count, kFarParts, kNearDiagonals};
    const int sequence = number / kOfSequence;
    const int diagonal = number % kNearDiagonals;
    // Of a sequence that ends before it, the diagonal's tile is empty or another's.
    const auto tile =
        static_cast<int>(__ldg(all.offsets + sequence) / kPaddedRows) + sequence + diagonal;
    return {all.tiles[min(tile, all.count - 1)], number % kOfSequence / kNearDiagonals, kNearParts,
            diagonal};
  }
};

}  // namespace turbogr::cuda
