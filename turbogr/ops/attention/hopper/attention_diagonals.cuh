// Work over all units of a band, cut into walks: every parts-th unit of a diagonal of a sequence's
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

  // The walk's first tile of queries and the one it ends before, in the sequence and in a band.
  struct QueryTiles {
    int first;
    int end;

    __device__ __forceinline__ bool empty() const { return first >= end; }
  };
  __device__ __forceinline__ QueryTiles query_tiles() const {
    if (min(static_cast<int>(tile.block), kNearDiagonals) != diagonal) return {0, 0};
    return {tile.block + part, tiles_of(tile.length)};
  }
  __device__ __forceinline__ QueryTiles query_tiles(const PairArgs& pairs,
                                                    const PairRange& range) const {
    const QueryTiles all = query_tiles();
    if (pairs.band == PairBand::kAll || all.empty()) return all;
    const int ahead = pairs.band == PairBand::kOfKeys ? tile.block : 0;  // queries of keys
    return {max(static_cast<int>(tile.block), range.first + ahead) + part,
            min(all.end, range.end + ahead)};
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
