// A tile of keys x queries: who sees whom, and the sigmoid of its scores.
#pragma once

#include "turbogr/ops/attention/cpu/attention_pack_simd.h"

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

// Two vectors in bf16, one behind the other. (Subnormal numbers count as zero.)
#if defined(__AVX512BF16__)
inline Halves2 join(Floats first, Floats second) {
  return (Halves2)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
}
#endif

// Two rows as words: element l of `low` and of `high` side by side.
inline Floats zip(Floats low, Floats high) {
#if defined(__AVX512BF16__)
  const auto order = [](int l) { return l / 2 + (l % 2) * kLanes; };
  const Halves2 halves = join(low, high);
  return (Floats)shuffle(halves, halves, order, std::make_integer_sequence<int, 2 * kLanes>());
#else
  const Words a = __builtin_convertvector(to_halves(low), Words);
  const Words b = __builtin_convertvector(to_halves(high), Words);
  return (Floats)(a | b << 16);
#endif
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
