// Philox of kLanes counters at once: the bits of philox.h. For x_simd.cc files.
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

// Turns counters, four words a lane, into their random words.
inline void philox_rounds(std::uint64_t key, Words* c0, Words* c1, Words* c2, Words* c3) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    Words high0, low0, high1, low1;
    wide_multiply(*c0, 0xD2511F53u, &high0, &low0);
    wide_multiply(*c2, 0xCD9E8D57u, &high1, &low1);
    *c0 = high1 ^ *c1 ^ k0;
    *c2 = high0 ^ *c3 ^ k1;
    *c1 = low1;
    *c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

}  // namespace
}  // namespace turbogr::TGR_SIMD
