// The mask of dropout_mask.h, drawn kLanes blocks at a time. For x_simd.cc files.
#pragma once

#include "turbogr/core/philox_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

// a lane's four words side by side: words[i] = {c0[i], c1[i], c2[i], c3[i], c0[i + 4], ...}.
struct LaneWords {
  Words at[4];
};
inline LaneWords transposed(Words c0, Words c1, Words c2, Words c3) {
#if defined(__AVX512F__)
  const __m512i low01 = _mm512_unpacklo_epi32((__m512i)c0, (__m512i)c1);
  const __m512i low23 = _mm512_unpacklo_epi32((__m512i)c2, (__m512i)c3);
  const __m512i high01 = _mm512_unpackhi_epi32((__m512i)c0, (__m512i)c1);
  const __m512i high23 = _mm512_unpackhi_epi32((__m512i)c2, (__m512i)c3);
  return {{(Words)_mm512_unpacklo_epi64(low01, low23), (Words)_mm512_unpackhi_epi64(low01, low23),
           (Words)_mm512_unpacklo_epi64(high01, high23),
           (Words)_mm512_unpackhi_epi64(high01, high23)}};
#elif defined(__AVX2__)
  const __m256i low01 = _mm256_unpacklo_epi32((__m256i)c0, (__m256i)c1);
  const __m256i low23 = _mm256_unpacklo_epi32((__m256i)c2, (__m256i)c3);
  const __m256i high01 = _mm256_unpackhi_epi32((__m256i)c0, (__m256i)c1);
  const __m256i high23 = _mm256_unpackhi_epi32((__m256i)c2, (__m256i)c3);
  return {{(Words)_mm256_unpacklo_epi64(low01, low23), (Words)_mm256_unpackhi_epi64(low01, low23),
           (Words)_mm256_unpacklo_epi64(high01, high23),
           (Words)_mm256_unpackhi_epi64(high01, high23)}};
#else
  LaneWords words;
  for (int i = 0; i < 4; ++i) words.at[i] = Words{c0[i], c1[i], c2[i], c3[i]};
  return words;
#endif
}

// Factors (0 or scale) of the 8 * kLanes columns from `first_column`, a multiple of that, of one
// row.
inline void dropout_factors(std::uint64_t seed, std::uint64_t row_key, std::uint64_t site,
                            std::int64_t first_column, std::uint32_t threshold, float scale,
                            float* out) {
  // Which block a lane draws: in this order the blocks lie side by side once transposed.
#if defined(__AVX512F__)
  constexpr Words kBlock = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
#elif defined(__AVX2__)
  constexpr Words kBlock = {0, 2, 4, 6, 1, 3, 5, 7};
#else
  constexpr Words kBlock = {0, 1, 2, 3};
#endif
  const std::uint64_t high = (site << 24) + static_cast<std::uint64_t>(first_column / 8);
  Words c0 = splat_word(static_cast<std::uint32_t>(row_key));
  Words c1 = splat_word(static_cast<std::uint32_t>(row_key >> 32));
  // Blocks stay below 2^24, so adding one never carries into the site's upper word.
  Words c2 = splat_word(static_cast<std::uint32_t>(high)) + kBlock;
  Words c3 = splat_word(static_cast<std::uint32_t>(high >> 32));
  philox_rounds(seed, &c0, &c1, &c2, &c3);
  // A block's four words are its eight columns' sixteen bits in order.
  const LaneWords words = transposed(c0, c1, c2, c3);
  const Floats kept = splat(scale);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    Halves bits[2];
    std::memcpy(bits, &words.at[i], sizeof bits);
    for (int half = 0; half < 2; ++half) {
      const Ints dropped = (Ints)(__builtin_convertvector(bits[half], Words) < threshold);
      store(out + (2 * i + half) * kLanes, (Floats)((Ints)kept & ~dropped));
    }
  }
}

}  // namespace
}  // namespace turbogr::TGR_SIMD
