// The pairs of a batch in bands. What belongs to pairs (attention_pairs.cuh) lies in units of 64 x
// 64 tokens; room for all of them at once would go with the squares of lengths. So there is room
// linear in tokens, and where that is too little, a call takes band after band: a run of the tiles
// that its kernels walk, in the order of their list, of queries with all keys before them or of
// keys with all queries after them. Nothing here needs a GPU.
#pragma once

#include <cstdint>

#include "turbogr/core/host_device.h"

namespace turbogr::cuda {

inline constexpr int kUnit = 64;
inline constexpr int kUnitBytes = kUnit * kUnit * 2;

// Room a token, in bytes, of which sequences of 4,096 tokens take 4,160.
inline constexpr std::int64_t kRoomPerToken = 4608;
// A batch of fewer tokens has as much room as one of so many: what is small need not be cut.
inline constexpr std::int64_t kRoomTokens = 65536;

TGR_HD constexpr std::int64_t triangle(std::int64_t n) { return n * (n + 1) / 2; }
TGR_HD constexpr int tiles_of(std::int64_t length, int rows = kUnit) {
  return static_cast<int>((length + rows - 1) / rows);
}
// Of one sequence: tiles of keys not behind tiles of queries.
TGR_HD constexpr std::int64_t units_of(std::int64_t length) { return triangle(tiles_of(length)); }

// Sequences of at most so many tokens have kernels of their own (attention_short.cuh), which make
// their pairs on chip: memory for pairs is of longer ones.
inline constexpr int kPackRows = 64;
// No tile of queries or keys of any kernel has more.
inline constexpr int kMostTileRows = 128;

// No batch of so many tokens has more sequences that are longer than a pack.
inline std::int64_t most_long(std::int64_t tokens, std::int64_t batch, std::int64_t max_length) {
  if (max_length > 0 && max_length <= kPackRows) return 0;
  return batch < tokens / (kPackRows + 1) ? batch : tokens / (kPackRows + 1);
}
// Nor more units of `longs` long ones, with n tokens and t = ceil(n / 64) tiles a sequence:
// t (t + 1) / 2 <= x (x + 3) / 2 + 1, x = n / 64 <= max_length / 64.
inline std::int64_t most_units(std::int64_t tokens, std::int64_t max_length, std::int64_t longs) {
  return longs == 0 ? 0 : tokens * (max_length + 3 * kUnit) / (2 * kUnit * kUnit) + longs;
}

struct PairBands {
  int count = 1;          // no batch of the shape has more that are not empty
  std::int64_t room = 0;  // units; a band ends with the tile that reaches it
};

// `long_rows`: every sequence with pairs here is longer. `room`: of a band; 0: as said above.
inline PairBands pair_bands(std::int64_t tokens, std::int64_t max_length, int long_rows,
                            std::int64_t room = 0) {
  // n tokens in t = ceil(n / 64) tiles have t (t + 1) / 2 <= n (n + 192) / 8192 + 1 units.
  const std::int64_t most = tokens * (max_length + 3 * kUnit + kUnitBytes / long_rows + 1);
  const std::int64_t room_bytes =
      room > 0 ? room * kUnitBytes : kRoomPerToken * (tokens > kRoomTokens ? tokens : kRoomTokens);
  if (most <= room_bytes) return {1, room_bytes / kUnitBytes};
  // A third more than full bands would be, since band_end cuts some short.
  return {static_cast<int>((4 * most + 3 * room_bytes - 1) / (3 * room_bytes)),
          (room_bytes + kUnitBytes - 1) / kUnitBytes};
}

// Units that there must be room for, of `most` in all: the tile with which a band ends may be the
// largest.
inline std::int64_t room_units(const PairBands& bands, std::int64_t most, std::int64_t max_length,
                               int tile_rows = kMostTileRows) {
  return bands.count == 1 ? most : bands.room + tile_rows / kUnit * tiles_of(max_length);
}

// What a step with a bias of pairs takes for them: to keep, a layer, for its backward call; and of
// bias and gradients while a call runs.
struct PairBytes {
  std::int64_t kept = 0, scratch = 0;
};
inline PairBytes pair_bytes(std::int64_t tokens, std::int64_t batch, std::int64_t max_length) {
  const std::int64_t most = most_units(tokens, max_length, most_long(tokens, batch, max_length));
  if (most == 0) return {};
  const PairBands bands = pair_bands(tokens, max_length, kPackRows);
  return {bands.count == 1 ? most * kUnitBytes : 0,
          2 * room_units(bands, most, max_length) * kUnitBytes};
}

// A sequence's last tile in a list has no more units: two rows of queries, or of keys, at most.
inline constexpr int kLastUnits = 3;

// A list's tiles cut into bands.
struct BandCut {
  std::int64_t room;
  int heads;  // each tile is an item for each
  int slots;  // items that run at once
};

// The tile before which the band ends that begins with tile `first`, with so many bands after it.
// areas[i]: units of the tiles before tile i, for i up to `tiles`.
//
// All processors should come to the end of a band together. So it best ends where a sequence does,
// with that one's smallest tiles and not with the next one's largest. Within a sequence its items
// should fill whole rounds of slots, as neighbours take the same time. But no more is left than the
// bands after it are sure to hold.
template <class Areas>
TGR_HD int band_end(const Areas& areas, int tiles, int first, const BandCut& cut, int bands_after) {
  if (first >= tiles) return tiles;
  const std::int64_t begin = areas[first];
  int low = first + 1;
  int high = tiles;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (areas[middle] - begin >= cut.room) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (low == tiles) return tiles;
  const auto may_end = [&](int end) {
    return end > first && areas[tiles] - areas[end] <= bands_after * cut.room;
  };
  for (int end = low; end > first && 4 * (areas[end] - begin) >= 3 * cut.room; --end) {
    if (areas[end] - areas[end - 1] <= kLastUnits && may_end(end)) return end;
  }
  const std::int64_t rounds = static_cast<std::int64_t>(low - first) * cut.heads / cut.slots;
  const int whole = first + static_cast<int>(rounds * cut.slots / cut.heads);
  return may_end(whole) ? whole : low;
}

// Units of a sequence's tiles of queries that come before `block` in a list, last tiles first; and
// of keys, first tiles first. `units`: a tile's rows over 64; `tiles`: of 64, in the sequence.
TGR_HD constexpr std::int64_t units_after_queries(int block, int units, int tiles) {
  const int end = (block + 1) * units < tiles ? (block + 1) * units : tiles;
  return triangle(tiles) - triangle(end);
}
TGR_HD constexpr std::int64_t units_before_keys(int block, int units, int tiles) {
  return triangle(tiles) - triangle(tiles - block * units);
}

// What a band has of one sequence, tiles of 64: queries first up to end, with all keys up to their
// own; or keys, with all queries from their own on. Of a whole sequence it is the same.
struct alignas(16) PairRange {
  int start;  // of the units (see below)
  int first;
  int end;
  int unused;
};

// `count` tiles of a list from `block` on; `area`: units of the band before them.
TGR_HD constexpr PairRange query_range(std::int64_t area, int block, int count, int units,
                                       int tiles) {
  const int first = (block + 1 - count) * units;
  const int end = (block + 1) * units < tiles ? (block + 1) * units : tiles;
  return {static_cast<int>(area - triangle(first)), first, end, 0};
}
TGR_HD constexpr PairRange key_range(std::int64_t area, int block, int count, int units,
                                     int tiles) {
  const int end = (block + count) * units < tiles ? (block + count) * units : tiles;
  return {static_cast<int>(area), block * units, end, 0};
}

// A unit's number in a band of queries: row after row of keys.
TGR_HD constexpr int unit_by_queries(int start, int query_tile, int key_tile) {
  return start + query_tile * (query_tile + 1) / 2 + key_tile;
}
// In a band of keys: row after row of those keys, the first rows up to the diagonal only.
TGR_HD constexpr int unit_by_keys(const PairRange& range, int query_tile, int key_tile) {
  const int row = query_tile - range.first;
  const int width = range.end - range.first;
  const int full = row < width ? row : width;
  return range.start + full * (full + 1) / 2 + (row - full) * width + key_tile - range.first;
}

}  // namespace turbogr::cuda
