// The mask of dropout_mask.h, drawn kLanes blocks at a time. For x_simd.cc files.
#pragma once

#include "turbogr/core/simd.h"

namespace turbogr::TGR_SIMD {
namespace {

typedef std::uint64_t LongWords __attribute__((vector_size(kLanes * 4)));  // pairs of Words

// Both halves of each lane's 64-bit product with `factor`: even and odd lanes apart, as the
// processor multiplies them.
inline void wide_multiply(Words v, std::uint32_t factor, Words* high, Words* low) {
#if defined(__AVX512F__)
  const __m512i f = _mm512_set1_epi64(factor);
  const __m512i even = _mm512_mul_epu32((__m512i)v, f);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)v, 32), f);
#elif defined(__AVX2__)
  const __m256i f = _mm256_set1_epi64x(factor);
  const __m256i even = _mm256_mul_epu32((__m256i)v, f);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)v, 32), f);
#else
  const LongWords even = ((LongWords)v & 0xffffffffu) * factor;
  const LongWords odd = ((LongWords)v >> 32) * factor;
#endif
  const LongWords low_half = LongWords{} + 0xffffffffu;
  *high = (Words)(((LongWords)even >> 32) | ((LongWords)odd & ~low_half));
  *low = (Words)(((LongWords)even & low_half) | ((LongWords)odd << 32));
}

// Factors (0 or scale) of the 8 * kLanes columns from `first_column`, a multiple of that, of one
// row.
inline void dropout_factors(std::uint64_t seed, std::uint64_t row_key, std::uint64_t site,
                            std::int64_t first_column, std::uint32_t threshold, float scale,
                            float* out) {
  Words lane_index;
  for (int lane = 0; lane < kLanes; ++lane) lane_index[lane] = static_cast<std::uint32_t>(lane);
  const std::uint64_t high = (site << 24) + static_cast<std::uint64_t>(first_column / 8);
  Words c0 = splat_word(static_cast<std::uint32_t>(row_key));
  Words c1 = splat_word(static_cast<std::uint32_t>(row_key >> 32));
  // Blocks stay below 2^24, so adding the lane never carries into the site's upper word.
  Words c2 = splat_word(static_cast<std::uint32_t>(high)) + lane_index;
  Words c3 = splat_word(static_cast<std::uint32_t>(high >> 32));
  auto k0 = static_cast<std::uint32_t>(seed);
  auto k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    Words high0, low0, high1, low1;
    wide_multiply(c0, 0xD2511F53u, &high0, &low0);
    wide_multiply(c2, 0xCD9E8D57u, &high1, &low1);
    c0 = high1 ^ c1 ^ k0;
    c2 = high0 ^ c3 ^ k1;
    c1 = low1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  // A lane's four words, side by side, are its eight columns' sixteen bits in order.
  std::uint32_t words[4][kLanes];
  std::memcpy(words[0], &c0, sizeof c0);
  std::memcpy(words[1], &c1, sizeof c1);
  std::memcpy(words[2], &c2, sizeof c2);
  std::memcpy(words[3], &c3, sizeof c3);
  std::uint32_t blocks[kLanes][4];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int w = 0; w < 4; ++w) blocks[lane][w] = words[w][lane];
  }
  const Floats kept = splat(scale);
  for (int i = 0; i < 8; ++i) {
    Halves bits;
    std::memcpy(&bits, reinterpret_cast<const char*>(blocks) + i * sizeof bits, sizeof bits);
    const Ints dropped = (Ints)(__builtin_convertvector(bits, Words) < threshold);
    store(out + i * kLanes, (Floats)((Ints)kept & ~dropped));
  }
}

}  // namespace
}  // namespace turbogr::TGR_SIMD
