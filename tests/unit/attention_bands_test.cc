#include "turbogr/ops/attention/hopper/attention_bands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace turbogr::cuda {
namespace {

// A list as the plan makes it: the longest sequences first, each tile's units.
struct Tile {
  int length;
  int sequence;
  int block;
};
struct List {
  bool queries;
  int units;  // a tile's rows over 64
  std::vector<Tile> tiles;
  std::vector<int> areas = {0};

  List(std::vector<int> lengths, bool of_queries, int tile_units)
      : queries(of_queries), units(tile_units) {
    std::sort(lengths.rbegin(), lengths.rend());
    int area = 0;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      const int length = lengths[s];
      const int blocks = tiles_of(length, units * kUnit);
      for (int i = 0; i < blocks; ++i) {
        tiles.push_back({length, static_cast<int>(s), queries ? blocks - 1 - i : i});
        // Counted one by one, not by the formulas.
        for (int row = 0; row < tiles_of(length); ++row) {
          const bool here = row / units == tiles.back().block;
          if (here) area += queries ? row + 1 : tiles_of(length) - row;
        }
        areas.push_back(area);
      }
    }
  }
  int count() const { return static_cast<int>(tiles.size()); }
  std::vector<int> ends(const PairBands& bands, const BandCut& cut) const {
    std::vector<int> ends;
    int end = 0;
    for (int band = 0; band < bands.count; ++band) {
      end = band_end(areas.data(), count(), end, cut, bands.count - 1 - band);
      ends.push_back(end);
    }
    return ends;
  }
};

std::vector<std::vector<int>> batches() {
  std::mt19937 random(3);
  std::vector<std::vector<int>> all = {{65}, {5000}, {4096, 4096, 4096}, {9000, 70, 70, 70, 66}};
  for (int i = 0; i < 20; ++i) {
    std::vector<int> lengths;
    for (int s = 0; s < 1 + i; ++s) {
      const int most = s % 4 == 0 ? 6000 : 400;
      lengths.push_back(65 + static_cast<int>(random() % static_cast<unsigned>(most)));
    }
    all.push_back(lengths);
  }
  return all;
}

std::int64_t total(const std::vector<int>& lengths) {
  std::int64_t tokens = 0;
  for (const int n : lengths) tokens += n;
  return tokens;
}

TEST(PairBands, StepsOfSequencesUpToFourThousandAreOneBand) {
  for (const std::int64_t tokens : {1, 65536, 131072, 10'000'000}) {
    for (const std::int64_t longest : {64, 512, 2048, 4096}) {
      EXPECT_EQ(pair_bands(tokens, longest, 64).count, 1) << tokens << " of " << longest;
    }
  }
  EXPECT_EQ(pair_bands(16384, 16384, 64).count, 1);
  EXPECT_GT(pair_bands(65536, 8192, 64).count, 1);
}

TEST(PairBands, HaveRoomLinearInTokensWhateverTheLengths) {
  for (const std::int64_t tokens : {65536, 1'000'000}) {
    for (const std::int64_t longest : {8192, 65536, 1'000'000}) {
      const PairBands bands = pair_bands(tokens, longest, 64);
      EXPECT_LE(bands.room * kUnitBytes, kRoomPerToken * tokens + kUnitBytes);
    }
  }
}

// A plan for a batch of some size must serve smaller ones, too.
TEST(PairBands, AreNotMoreForFewerTokens) {
  for (const std::int64_t longest : {8192, 30000, 65536}) {
    int count = 1;
    for (std::int64_t tokens = 1; tokens < 400'000; tokens += 1 + tokens / 7) {
      const PairBands bands = pair_bands(tokens, longest, 64);
      EXPECT_GE(bands.count, count) << tokens << " of " << longest;
      count = bands.count;
    }
  }
}

// bench/results/attention_bias_h200_2026-11-16.md: room for bias and gradients 638 MB with bands,
// where the matrices were 8.6 GB; 147 MB each for sequences of 2,048 (docs/design.md).
TEST(PairBands, SayWhatAStepKeepsAndWhatItHasRoomFor) {
  const PairBytes banded = pair_bytes(65536, 1, 65536);
  EXPECT_EQ(banded.kept, 0);
  EXPECT_NEAR(static_cast<double>(banded.scratch), 638e6, 1e6);
  const PairBytes whole = pair_bytes(65536, 32, 2048);
  EXPECT_NEAR(static_cast<double>(whole.kept), 147e6, 1e6);
  EXPECT_EQ(whole.scratch, 2 * whole.kept);
  EXPECT_EQ(pair_bytes(65536, 1024, 64).scratch, 0);  // packs keep theirs on chip
  EXPECT_EQ(pair_bytes(0, 0, 2048).kept, 0);
}

TEST(PairBands, EndWithTheTileThatReachesTheRoomOrAfterWholeRounds) {
  const std::vector<int> areas = {0, 40, 80, 120, 150, 180, 200, 220, 230, 240};
  const auto end = [&](int first, const BandCut& cut, int after) {
    return band_end(areas.data(), 9, first, cut, after);
  };
  EXPECT_EQ(end(0, {80, 1, 1}, 9), 2);
  EXPECT_EQ(end(0, {90, 1, 1}, 9), 3);
  EXPECT_EQ(end(3, {90, 1, 1}, 9), 7);
  // Two heads, of which four items run at once: two tiles a round.
  EXPECT_EQ(end(0, {90, 2, 4}, 9), 2);
  EXPECT_EQ(end(3, {90, 2, 4}, 9), 7);
  EXPECT_EQ(end(4, {80, 2, 4}, 9), 8);
  // Less than a round.
  EXPECT_EQ(end(0, {90, 2, 8}, 9), 3);
  // One band more would not hold what is left.
  EXPECT_EQ(end(0, {90, 2, 4}, 1), 3);
  EXPECT_EQ(end(0, {160, 2, 8}, 1), 4);
  // The last tiles, and no tiles.
  EXPECT_EQ(end(6, {90, 2, 4}, 9), 9);
  EXPECT_EQ(end(9, {90, 1, 1}, 9), 9);
  EXPECT_EQ(band_end(areas.data(), 0, 0, {90, 1, 1}, 9), 0);
}

TEST(PairBands, EndWhereASequenceDoesIfThatFillsThreeQuarters) {
  // Sequences of eight, six and four tiles of 64.
  for (const bool queries : {true, false}) {
    const List list({8 * kUnit, 6 * kUnit, 4 * kUnit}, queries, 2);
    const auto end = [&](int first, const BandCut& cut, int after) {
      return band_end(list.areas.data(), list.count(), first, cut, after);
    };
    EXPECT_EQ(list.areas, (std::vector<int>{0, 15, 26, 33, 36, 47, 54, 57, 64, 67}));
    EXPECT_EQ(end(0, {46, 1, 1}, 9), 4);
    EXPECT_EQ(end(0, {58, 1, 1}, 9), 7);
    // A sequence's end that would leave more than a quarter.
    EXPECT_EQ(end(0, {49, 1, 1}, 9), 6);
    // Or more than the other bands hold.
    EXPECT_EQ(end(0, {46, 1, 1}, 0), 5);
    EXPECT_EQ(end(4, {22, 1, 1}, 9), 7);
  }
}

TEST(PairBands, HoldEveryTileOfEveryBatch) {
  for (const std::vector<int>& lengths : batches()) {
    const std::int64_t tokens = total(lengths);
    const int longest = *std::max_element(lengths.begin(), lengths.end());
    for (const int room : {1, 7, 40, 300}) {
      for (const int heads : {1, 3, 8}) {
        for (const bool queries : {true, false}) {
          for (const int units : {1, 2}) {
            const List list(lengths, queries, units);
            const PairBands bands = pair_bands(tokens, longest, 64, room);
            if (bands.count == 1) {
              EXPECT_LE(list.areas.back(), room);
              continue;
            }
            const auto ends = list.ends(bands, {bands.room, heads, 12});
            EXPECT_EQ(ends.back(), list.count());
            int first = 0;
            for (const int end : ends) {
              EXPECT_LE(list.areas[static_cast<std::size_t>(end)] -
                            list.areas[static_cast<std::size_t>(first)],
                        room - 1 + units * tiles_of(longest));
              first = end;
            }
          }
        }
      }
    }
  }
}

TEST(PairBands, CountUnitsBeforeATileAsTheListDoes) {
  for (const std::vector<int>& lengths : batches()) {
    for (const bool queries : {true, false}) {
      for (const int units : {1, 2}) {
        const List list(lengths, queries, units);
        int start = 0;
        for (int i = 0; i < list.count(); ++i) {
          const auto [length, sequence, block] = list.tiles[static_cast<std::size_t>(i)];
          const int tiles = tiles_of(length);
          if (i == 0 || list.tiles[static_cast<std::size_t>(i) - 1].sequence != sequence) {
            start = list.areas[static_cast<std::size_t>(i)];
          }
          EXPECT_EQ(list.areas[static_cast<std::size_t>(i)] - start,
                    queries ? units_after_queries(block, units, tiles)
                            : units_before_keys(block, units, tiles));
        }
        EXPECT_EQ(list.areas.back() - start, units_of(list.tiles.back().length));
      }
    }
  }
}

// No two units of a band share a place, and all lie in its room.
TEST(PairBands, GiveEveryUnitAPlaceOfItsOwn) {
  for (const std::vector<int>& lengths : batches()) {
    for (const bool queries : {true, false}) {
      for (const int units : {1, 2}) {
        const List list(lengths, queries, units);
        const PairBands bands = {1 << 20, 100};
        int end = 0;
        for (int first = 0; first < list.count(); first = end) {
          end = band_end(list.areas.data(), list.count(), first, {bands.room, 1, 1}, 1 << 20);
          const int begin = list.areas[static_cast<std::size_t>(first)];
          std::set<int> places;
          const auto take = [&](int place) {
            EXPECT_GE(place, 0);
            EXPECT_LT(place, list.areas[static_cast<std::size_t>(end)] - begin);
            EXPECT_TRUE(places.insert(place).second) << place;
          };
          for (int i = first; i < end; ++i) {
            const auto [length, sequence, block] = list.tiles[static_cast<std::size_t>(i)];
            const int blocks = tiles_of(length, units * kUnit);
            const int tiles = tiles_of(length);
            if (i != first && block != (queries ? blocks - 1 : 0)) continue;
            const int area = list.areas[static_cast<std::size_t>(i)] - begin;
            const int count = std::min(queries ? block + 1 : blocks - block, end - i);
            const PairRange range = queries ? query_range(area, block, count, units, tiles)
                                            : key_range(area, block, count, units, tiles);
            for (int tile = range.first; tile < range.end; ++tile) {
              if (queries) {
                for (int key = 0; key <= tile; ++key) take(unit_by_queries(range.start, tile, key));
              } else {
                for (int query = tile; query < tiles; ++query) {
                  take(unit_by_keys(range, query, tile));
                }
              }
            }
          }
          EXPECT_EQ(static_cast<int>(places.size()),
                    list.areas[static_cast<std::size_t>(end)] - begin);
        }
      }
    }
  }
}

TEST(PairBands, OfAWholeSequenceAreTheSameByQueriesAndByKeys) {
  const PairRange range = {17, 0, 9, 0};
  for (int query = 0; query < 9; ++query) {
    for (int key = 0; key <= query; ++key) {
      EXPECT_EQ(unit_by_keys(range, query, key), unit_by_queries(range.start, query, key));
    }
  }
}

}  // namespace
}  // namespace turbogr::cuda
