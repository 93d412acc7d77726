// The tables over position and time inside a tile: their weights, and the sums over diagonals and
// time buckets that are their gradients.
#pragma once

#include "turbogr/ops/attention/cpu/attention_tile_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

// ---- weights ----------------------------------------------------------------------------------

// Queries of the tile from the sequence's last place on, and how many keys are before it, where
// both are there. A key behind it is seen by nobody but itself, at distance 0, and needs no care.
struct LastPlace {
  std::int64_t first_query, keys;
};
inline LastPlace last_place(const AttentionItem& item, const Tile& tile) {
  const std::int64_t first = item.last_place - tile.first_query;
  const std::int64_t keys = item.last_place - tile.first_key;
  if (first >= tile.queries) return {tile.queries, 0};
  return {first > 0 ? first : 0, keys < tile.keys ? keys : tile.keys};
}

// map(key, query) = position[S - 1 + key - query]; in a row the table runs backwards.
inline void position_map(const AttentionArgs& args, const AttentionItem& item, const Tile& tile,
                         float* map) {
  float window[2 * kTile];
  // window[u] is the weight of query - key = distance + u - (64 - 1).
  const std::int64_t distance = tile.first_query - tile.first_key;
  const std::int64_t table_size = 2 * args.max_length - 1;
  for (std::int64_t u = 0; u < 2 * kTile; ++u) {
    const std::int64_t index = args.max_length - 1 - (distance + u - (kTile - 1));
    window[u] = index >= 0 && index < table_size ? args.position[index] : 0.0f;
  }
  for (std::int64_t r = 0; r < tile.keys; ++r) {
    for (std::int64_t v = 0; v < tile.query_vectors; ++v) {
      store(map + r * kTile + v * kLanes, load(window + kTile - 1 - r + v * kLanes));
    }
  }
  const LastPlace last = last_place(item, tile);
  for (std::int64_t r = 0; r < last.keys; ++r) {
    const std::int64_t index = args.max_length - 1 + tile.first_key + r - item.last_place;
    for (std::int64_t q = last.first_query; q < tile.queries; ++q) {
      map[r * kTile + q] = args.position[index];
    }
  }
}

inline std::int64_t bucket_of(const AttentionArgs& args, std::uint64_t gap) {
  const int bits = gap == 0 ? 0 : 64 - __builtin_clzll(gap);
  std::int64_t bucket = args.time_first_bucket[bits];
  while (bucket + 1 < kAttentionTimeBuckets && gap >= args.time_first_gap[bucket + 1]) ++bucket;
  return bucket;
}

// The last gap of a bucket.
inline std::uint64_t last_gap(const AttentionArgs& args, std::int64_t bucket) {
  return bucket + 1 < kAttentionTimeBuckets ? args.time_first_gap[bucket + 1] - 1
                                            : ~std::uint64_t{0};
}

// A tile's times. When all of them lie within 2^32 of each other they are compared as 32-bit
// offsets from the earliest.
struct TileTimes {
  bool narrow;
  std::int64_t first_bucket, last_bucket;  // of any gap in the tile; only where narrow
  std::uint64_t earliest;
  std::uint32_t query_offsets[kTile];
  const std::int64_t* query_times;
  const std::int64_t* key_times;
};

struct TimeSpan {
  std::int64_t first, last;
};
inline TimeSpan span_of(const std::int64_t* times, std::int64_t count) {
  TimeSpan span = {times[0], times[0]};
  for (std::int64_t i = 1; i < count; ++i) {
    span.first = times[i] < span.first ? times[i] : span.first;
    span.last = times[i] > span.last ? times[i] : span.last;
  }
  return span;
}

inline void prepare_times(const AttentionArgs& args, const AttentionItem& item, const Tile& tile,
                          TileTimes& times) {
  times.query_times = args.query_times + item.begin + tile.first_query;
  times.key_times = args.key_times + item.begin + tile.first_key;
  const TimeSpan queries = span_of(times.query_times, tile.queries);
  const TimeSpan keys = span_of(times.key_times, tile.keys);
  const std::int64_t low = queries.first < keys.first ? queries.first : keys.first;
  const std::int64_t high = queries.last > keys.last ? queries.last : keys.last;
  times.earliest = static_cast<std::uint64_t>(low);
  times.narrow = static_cast<std::uint64_t>(high) - times.earliest <= 0xffffffffu;
  if (!times.narrow) return;
  const std::int64_t least = queries.first > keys.last   ? queries.first - keys.last
                             : keys.first > queries.last ? keys.first - queries.last
                                                         : 0;
  const std::int64_t ahead = queries.last - keys.first;
  const std::int64_t behind = keys.last - queries.first;
  times.first_bucket = bucket_of(args, static_cast<std::uint64_t>(least));
  times.last_bucket = bucket_of(args, static_cast<std::uint64_t>(ahead > behind ? ahead : behind));
  for (std::int64_t i = 0; i < kTile; ++i) {
    const std::int64_t time = times.query_times[i < tile.queries ? i : tile.queries - 1];
    times.query_offsets[i] =
        static_cast<std::uint32_t>(static_cast<std::uint64_t>(time) - times.earliest);
  }
}

constexpr std::int64_t kFewBuckets = 8;

// The buckets of key r of the tile, each with its queries; returns how many. Nothing is assumed of
// the order of times; in order, a bucket is a run of neighbours and there are few.
inline std::int64_t time_runs(const AttentionArgs& args, const Tile& tile, const TileTimes& times,
                              std::int64_t r, AttentionTimeRun* runs) {
  const std::int64_t vectors = tile.query_vectors;
  const std::int64_t lanes = vectors * kLanes;
  std::uint64_t left = lanes == kTile ? ~std::uint64_t{0} : (std::uint64_t{1} << lanes) - 1;
  std::int64_t count = 0;
  if (times.narrow) {
    const Words key = splat_word(static_cast<std::uint32_t>(
        static_cast<std::uint64_t>(times.key_times[r]) - times.earliest));
    std::uint32_t gaps[kTile];
    for (std::int64_t v = 0; v < vectors; ++v) {
      Words query;
      std::memcpy(&query, times.query_offsets + v * kLanes, sizeof query);
      const Words gap = query > key ? query - key : key - query;
      std::memcpy(gaps + v * kLanes, &gap, sizeof gap);
    }
    if (times.last_bucket - times.first_bucket < kFewBuckets) {
      // Bucket by bucket instead of query by query: no search, and no jumps that depend on it.
      for (std::int64_t bucket = times.first_bucket; bucket < times.last_bucket; ++bucket) {
        const Words last = splat_word(static_cast<std::uint32_t>(last_gap(args, bucket)));
        std::uint64_t same = 0;
        for (std::int64_t v = 0; v < vectors; ++v) {
          Words gap;
          std::memcpy(&gap, gaps + v * kLanes, sizeof gap);
          same |= not_above(gap, last) << (v * kLanes);
        }
        runs[count] = {same & left, bucket};
        count += (same & left) != 0 ? 1 : 0;
        left &= ~same;
      }
      runs[count] = {left, times.last_bucket};
      return count + (left != 0 ? 1 : 0);
    }
    while (left != 0) {
      const std::int64_t bucket = bucket_of(args, gaps[__builtin_ctzll(left)]);
      const std::uint64_t first = bucket == 0 ? 0 : args.time_first_gap[bucket];
      const std::uint64_t last = last_gap(args, bucket);
      const std::uint64_t width = (last > 0xffffffffu ? 0xffffffffu : last) - first;
      std::uint64_t same = 0;
      for (std::int64_t v = 0; v < vectors; ++v) {
        Words gap;
        std::memcpy(&gap, gaps + v * kLanes, sizeof gap);
        same |= not_above(gap - static_cast<std::uint32_t>(first),
                          splat_word(static_cast<std::uint32_t>(width)))
                << (v * kLanes);
      }
      runs[count++] = {same & left, bucket};
      left &= ~same;
    }
    return count;
  }
  std::uint64_t gaps[kTile];
  const std::int64_t key = times.key_times[r];
  for (std::int64_t i = 0; i < lanes; ++i) {
    const std::int64_t query = times.query_times[i < tile.queries ? i : tile.queries - 1];
    gaps[i] = query > key ? static_cast<std::uint64_t>(query) - static_cast<std::uint64_t>(key)
                          : static_cast<std::uint64_t>(key) - static_cast<std::uint64_t>(query);
  }
  while (left != 0) {
    const std::int64_t bucket = bucket_of(args, gaps[__builtin_ctzll(left)]);
    const std::uint64_t first = bucket == 0 ? 0 : args.time_first_gap[bucket];
    const std::uint64_t last = last_gap(args, bucket);
    std::uint64_t same = 0;
    for (std::int64_t i = 0; i < lanes; ++i) {
      same |= (gaps[i] >= first && gaps[i] <= last ? 1ull : 0ull) << i;
    }
    runs[count++] = {same & left, bucket};
    left &= ~same;
  }
  return count;
}

// The runs of every key of a tile. Neighbours whose runs are equal share them: so are begin and
// end.
struct TileRuns {
  AttentionTimeRun* runs;
  std::int32_t begin[kTile];
  std::int32_t end[kTile];
};

inline bool same_runs(const AttentionTimeRun* a, std::int64_t a_count, const AttentionTimeRun* b,
                      std::int64_t b_count) {
  if (a_count != b_count) return false;
  for (std::int64_t i = 0; i < a_count; ++i) {
    if (a[i].queries != b[i].queries || a[i].bucket != b[i].bucket) return false;
  }
  return true;
}

// map(key, query) (+)= time[bucket]. Keeps the runs for the gradient.
inline void time_map(const AttentionArgs& args, const AttentionItem& item, const Tile& tile,
                     bool add, float* map, TileRuns& runs) {
  TileTimes times;
  prepare_times(args, item, tile, times);
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Floats values[kTile / kLanes];
  const bool one_bucket = times.narrow && times.first_bucket == times.last_bucket;
  for (std::int64_t r = 0; r < tile.keys; ++r) {
    if (r == 0 || (!one_bucket && times.key_times[r] != times.key_times[r - 1])) {
      const std::int64_t count = time_runs(args, tile, times, r, runs.runs + end);
      if (!same_runs(runs.runs + begin, end - begin, runs.runs + end, count)) {
        begin = end;
        end = begin + count;
      }
      const Floats first = broadcast(args.time + runs.runs[begin].bucket);
      for (std::int64_t v = 0; v < tile.query_vectors; ++v) values[v] = first;
      for (std::int64_t run = begin + 1; run < end; ++run) {
        const Floats value = broadcast(args.time + runs.runs[run].bucket);
        for (std::int64_t v = 0; v < tile.query_vectors; ++v) {
          values[v] = choose(lane_bits(runs.runs[run].queries, v), value, values[v]);
        }
      }
    }
    runs.begin[r] = static_cast<std::int32_t>(begin);
    runs.end[r] = static_cast<std::int32_t>(end);
    float* row = map + r * kTile;
    for (std::int64_t v = 0; v < tile.query_vectors; ++v) {
      store(row + v * kLanes, add ? load(row + v * kLanes) + values[v] : values[v]);
    }
  }
}

// ---- gradients --------------------------------------------------------------------------------

// Takes the gradients of queries at the last place out of a tile and adds them to a sequence's
// dposition, by distance + length - 1.
inline void take_last_place(const AttentionItem& item, const Tile& tile, float* values,
                            float* dposition) {
  const LastPlace last = last_place(item, tile);
  for (std::int64_t r = 0; r < last.keys; ++r) {
    float sum = 0;
    for (std::int64_t q = last.first_query; q < tile.queries; ++q) {
      sum += values[r * kStride + q];
      values[r * kStride + q] = 0;
    }
    dposition[item.length - 1 + item.last_place - (tile.first_key + r)] += sum;
  }
}

// dposition[query - key] += tile(key, query), diagonal by diagonal: lane l of the vector at t sums
// diagonal t + l, whose elements are one further to the right in each row. Rows have zeros on both
// sides for the vectors that hang over.
inline void add_diagonals(const Tile& tile, float* values, float* dposition) {
  const std::int64_t width = tile.query_vectors * kLanes;
  if (width < kTile) {
    for (std::int64_t r = 0; r < tile.keys; ++r) {
      for (std::int64_t c = width; c < width + kAttentionPad; c += kLanes) {
        store(values + r * kStride + c, Floats{});
      }
    }
  }
  for (std::int64_t t = -((tile.keys + kLanes - 1) / kLanes) * kLanes; t < width; t += kLanes) {
    std::int64_t r = t < 1 - kLanes ? 1 - kLanes - t : 0;
    const std::int64_t end = tile.keys < width - t ? tile.keys : width - t;
    Floats a{}, b{}, c{}, d{};
    for (; r + 4 <= end; r += 4) {
      const float* p = values + r * (kStride + 1) + t;
      a += load(p);
      b += load(p + (kStride + 1));
      c += load(p + 2 * (kStride + 1));
      d += load(p + 3 * (kStride + 1));
    }
    for (; r < end; ++r) a += load(values + r * (kStride + 1) + t);
    const Floats total = (a + b) + (c + d);
    // Diagonals of no pair of the sequence hold zeros only; they may lie outside the buffer.
    float lanes[kLanes];
    store(lanes, total);
    for (int lane = 0; lane < kLanes; ++lane) {
      const std::int64_t diagonal = t + lane;
      if (diagonal > -tile.keys && diagonal < tile.queries) dposition[diagonal] += lanes[lane];
    }
  }
}

inline void add_time_runs(const Tile& tile, const float* values, const TileRuns& runs,
                          float* bins) {
  for (std::int64_t r = 0; r < tile.keys;) {
    const std::int32_t begin = runs.begin[r];
    const std::int32_t end = runs.end[r];
    Floats sums[kTile / kLanes] = {};
    for (; r < tile.keys && runs.begin[r] == begin; ++r) {
      for (std::int64_t v = 0; v < tile.query_vectors; ++v) {
        sums[v] += load(values + r * kStride + v * kLanes);
      }
    }
    for (std::int32_t run = begin; run < end; ++run) {
      Floats total{};
      for (std::int64_t v = 0; v < tile.query_vectors; ++v) {
        total += choose(lane_bits(runs.runs[run].queries, v), sums[v], Floats{});
      }
      float* bin = bins + runs.runs[run].bucket * kAttentionPad;
      store(bin, load(bin) + total);
    }
  }
}

}  // namespace
}  // namespace turbogr::TGR_SIMD
