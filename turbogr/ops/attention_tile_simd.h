// What happens inside a tile between products: mask, bias, SiLU and its slope, and the sums over
// diagonals and time buckets that are the tables' gradients.
#pragma once

#include "turbogr/ops/attention_pack_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

constexpr std::int64_t kTile = kAttentionTile;
constexpr std::int64_t kStride = kAttentionTileStride;

// A tile's place and size, and for each key the queries that see it.
struct Tile {
  std::int64_t first_query, queries, query_vectors;
  std::int64_t first_key, keys;
  bool full;        // every key is seen by every query
  bool triangular;  // no query sees a key after it: half of each product is zeros
  std::uint64_t seen[kTile];
};

// ---- mask -------------------------------------------------------------------------------------

// Bits of [begin, end) that fall into the 64 from `first` on.
inline std::uint64_t range_bits(std::int64_t begin, std::int64_t end, std::int64_t first) {
  const std::int64_t low = begin > first ? begin - first : 0;
  const std::int64_t high = end - first < kTile ? end - first : kTile;
  if (low >= high) return 0;
  const std::uint64_t ones = ~std::uint64_t{0};
  return (ones << low) & (ones >> (kTile - high));
}

// Fills in who sees what; false when no query of the tile sees any key.
inline bool mask_tile(const AttentionItem& item, Tile& tile) {
  const std::int64_t query_end = tile.first_query + tile.queries;
  const std::int64_t key_end = tile.first_key + tile.keys;
  const bool plain_queries = tile.first_query >= item.prefix && query_end <= item.history_end;
  const bool plain_keys = tile.first_key >= item.prefix && key_end <= item.history_end;
  // What most tiles of a long sequence are, found without looking at rows.
  if (tile.first_key >= item.prefix && tile.first_query >= item.prefix &&
      query_end <= tile.first_key) {
    return false;
  }
  if (plain_queries && plain_keys) {
    if (item.window != 0 && tile.first_query > key_end - 1 + item.window) return false;
    tile.full = tile.first_query >= key_end - 1 &&
                (item.window == 0 || query_end - 1 - tile.first_key <= item.window);
    tile.triangular = false;
    if (tile.full) return true;
  }
  const std::uint64_t all = range_bits(tile.first_query, query_end, tile.first_query);
  std::uint64_t any = 0;
  std::uint64_t every = all;
  tile.triangular = tile.first_query == tile.first_key;
  for (std::int64_t r = 0; r < tile.keys; ++r) {
    const std::int64_t key = tile.first_key + r;
    std::uint64_t bits = all;
    if (key >= item.history_end) {
      bits &= range_bits(key, key + 1, tile.first_query);
    } else if (key >= item.prefix) {
      const bool limited = item.window != 0 && item.window < item.length;
      const std::int64_t reach = limited ? key + item.window + 1 : item.history_end;
      const std::int64_t last = reach < item.history_end ? reach : item.history_end;
      std::uint64_t seen =
          range_bits(0, item.prefix, tile.first_query) | range_bits(key, last, tile.first_query);
      if (!limited || key >= item.history_end - item.window) {
        seen |= range_bits(item.history_end, item.length, tile.first_query);
      }
      bits &= seen;
    }
    tile.seen[r] = bits;
    if ((bits & ((std::uint64_t{1} << r) - 1)) != 0) tile.triangular = false;
    any |= bits;
    every &= bits;
  }
  tile.full = every == all;
  return any != 0;
}

inline std::uint32_t lane_bits(std::uint64_t bits, std::int64_t vector) {
  return static_cast<std::uint32_t>(bits >> (vector * kLanes)) & ((1u << (kLanes - 1) << 1) - 1u);
}

#if !defined(__AVX512F__)
inline Ints lanes_of(std::uint32_t bits) {
  Ints lane_bit;
  for (int lane = 0; lane < kLanes; ++lane) lane_bit[lane] = 1 << lane;
  return (lane_bit & static_cast<std::int32_t>(bits)) != 0;
}
#endif

// Lanes whose bit is set are taken from yes, others from no.
inline Floats choose(std::uint32_t bits, Floats yes, Floats no) {
#if defined(__AVX512F__)
  return (Floats)_mm512_mask_blend_ps(static_cast<__mmask16>(bits), (__m512)no, (__m512)yes);
#else
  return select(lanes_of(bits), yes, no);
#endif
}

// One bit a lane: a <= b.
inline std::uint64_t not_above(Words a, Words b) {
#if defined(__AVX512F__)
  return _mm512_cmple_epu32_mask((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return static_cast<std::uint32_t>(_mm256_movemask_ps((__m256)(a <= b)));
#else
  const Ints mask = (Ints)(a <= b);
  std::int32_t lanes[kLanes];
  std::memcpy(lanes, &mask, sizeof lanes);
  std::uint64_t bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) bits |= (lanes[lane] != 0 ? 1ull : 0ull) << lane;
  return bits;
#endif
}

// ---- bias -------------------------------------------------------------------------------------

// map(key, query) = position[S - 1 + key - query]; in a row the table runs backwards.
inline void position_map(const AttentionArgs& args, const Tile& tile, float* map) {
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
  std::uint64_t earliest;
  std::uint32_t query_offsets[kTile];
  const std::int64_t* query_times;
  const std::int64_t* key_times;
};

inline void prepare_times(const AttentionArgs& args, const AttentionItem& item, const Tile& tile,
                          TileTimes& times) {
  times.query_times = args.query_times + item.begin + tile.first_query;
  times.key_times = args.key_times + item.begin + tile.first_key;
  std::int64_t low = times.query_times[0];
  std::int64_t high = low;
  for (std::int64_t i = 0; i < tile.queries; ++i) {
    low = times.query_times[i] < low ? times.query_times[i] : low;
    high = times.query_times[i] > high ? times.query_times[i] : high;
  }
  for (std::int64_t j = 0; j < tile.keys; ++j) {
    low = times.key_times[j] < low ? times.key_times[j] : low;
    high = times.key_times[j] > high ? times.key_times[j] : high;
  }
  times.earliest = static_cast<std::uint64_t>(low);
  times.narrow = static_cast<std::uint64_t>(high) - times.earliest <= 0xffffffffu;
  if (!times.narrow) return;
  for (std::int64_t i = 0; i < kTile; ++i) {
    const std::int64_t time = times.query_times[i < tile.queries ? i : tile.queries - 1];
    times.query_offsets[i] =
        static_cast<std::uint32_t>(static_cast<std::uint64_t>(time) - times.earliest);
  }
}

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

// The runs of every key of a tile. Keys of one time in a row share theirs: begin and end are equal.
struct TileRuns {
  AttentionTimeRun* runs;
  std::int32_t begin[kTile];
  std::int32_t end[kTile];
};

// map(key, query) (+)= time[bucket]. Keeps the runs for the gradient.
inline void time_map(const AttentionArgs& args, const AttentionItem& item, const Tile& tile,
                     bool add, float* map, TileRuns& runs) {
  TileTimes times;
  prepare_times(args, item, tile, times);
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Floats values[kTile / kLanes];
  for (std::int64_t r = 0; r < tile.keys; ++r) {
    if (r == 0 || times.key_times[r] != times.key_times[r - 1]) {
      begin = end;
      end = begin + time_runs(args, tile, times, r, runs.runs + begin);
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

// ---- the tables' gradients --------------------------------------------------------------------

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

// ---- SiLU -------------------------------------------------------------------------------------

// kRough is enough for a weight that is rounded to bf16 right away: its error is below 2^-12.
template <bool kRough>
inline Floats score_sigmoid(Floats x) {
#if defined(__AVX512F__)
  // 2^-(x log2 e) as a polynomial times a power of two, then a reciprocal with a Newton step. The
  // bound keeps the reciprocal normal; operands are ordered so that a NaN stays one. (The maskz
  // forms, with every lane on, keep gcc 12 from warning about its own headers.)
  constexpr __mmask16 kAll = 0xffff;
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 scale = _mm512_set1_ps(-1.44269504088896341f);
  const __m512 bounded =
      kRough ? (__m512)x : _mm512_maskz_max_ps(kAll, _mm512_set1_ps(-87.0f), (__m512)x);
  const __m512 n = _mm512_maskz_roundscale_ps(kAll, _mm512_mul_ps(bounded, scale), 8);
  const Floats f = (Floats)_mm512_fmsub_ps(bounded, scale, n);
  Floats p;
  if constexpr (kRough) {  // to 8e-5
    p = splat(0.0551716685295105f);
    p = p * f + 0.2426111251115799f;
    p = p * f + 0.6932609677314758f;
    p = p * f + 0.9999280571937561f;
  } else {  // to 2e-9
    p = splat(1.5345810970757157e-4f);
    p = p * f + 1.3399930903688073e-3f;
    p = p * f + 9.618489071726799e-3f;
    p = p * f + 5.550328642129898e-2f;
    p = p * f + 0.24022646248340607f;
    p = p * f + 0.6931471824645996f;
    p = p * f + 1.0f;
  }
  const __m512 y = _mm512_add_ps(_mm512_maskz_scalef_ps(kAll, (__m512)p, n), one);
  const __m512 r = _mm512_maskz_rcp14_ps(kAll, y);
  if constexpr (kRough) return (Floats)r;
  return (Floats)_mm512_fmadd_ps(_mm512_fnmadd_ps(y, r, one), r, r);
#else
  return sigmoid(x);
#endif
}

// Two rows as words: element l of `low` and of `high` side by side.
inline Floats zip(Floats low, Floats high) {
#if defined(__AVX512BF16__)
  const Words a = __builtin_convertvector((Halves)_mm512_cvtneps_pbh((__m512)low), Words);
  const Words b = __builtin_convertvector((Halves)_mm512_cvtneps_pbh((__m512)high), Words);
#else
  const Words a = __builtin_convertvector(to_halves(low), Words);
  const Words b = __builtin_convertvector(to_halves(high), Words);
#endif
  return (Floats)(a | b << 16);
}

inline void store_halves(float* row, std::int64_t vector, Floats value) {
  char* target = reinterpret_cast<char*>(row) + vector * kLanes * 2;
#if defined(__AVX512BF16__)
  const __m256bh halves = _mm512_cvtneps_pbh((__m512)value);
  std::memcpy(target, &halves, sizeof halves);
#else
  const Halves halves = to_halves(value);
  std::memcpy(target, &halves, sizeof halves);
#endif
}

}  // namespace
}  // namespace turbogr::TGR_SIMD
