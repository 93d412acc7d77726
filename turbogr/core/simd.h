// Vectors for x_simd.cc files (cmake/TurbogrSimd.cmake compiles each once per instruction set).
// Everything lives in turbogr::<level>, nothing here is shared between levels. Raw pointers only,
// no std containers.
//
//   for (; c + kLanes <= n; c += kLanes) store(y + c, silu(load(x + c)));
//   if (c < n) store_first(y + c, silu(load_first(x + c, n - c)), n - c);
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#include "turbogr/core/dtype.h"

#ifndef TGR_SIMD
#error "simd.h is for x_simd.cc files only"
#endif

namespace turbogr::TGR_SIMD {
namespace {  // internal linkage: each file's copy is its own, whatever the linker does

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef std::int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef std::uint32_t Words __attribute__((vector_size(kLanes * 4)));
typedef std::uint16_t Halves __attribute__((vector_size(kLanes * 2)));

inline Words splat_word(std::uint32_t value) { return Words{} + value; }
// By its bits: 0 + value is an addition that the compiler has to keep, since it turns -0 into 0.
inline Floats splat(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return (Floats)splat_word(bits);
}

inline Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Floats v) { std::memcpy(p, &v, sizeof v); }

inline Floats load(const bf16* p) {
  Halves h;
  std::memcpy(&h, p, sizeof h);
  return (Floats)(__builtin_convertvector(h, Words) << 16);
}

// Round to nearest even; a NaN stays a NaN. The same bits as turbogr::bf16(float).
inline Halves round_to_halves(Floats v) {
  const Words w = (Words)v;
  const Words rounded = (w + 0x7fffu + ((w >> 16) & 1u)) >> 16;
  const Words quiet = (w >> 16) | 0x40u;
  const Ints is_nan = (Ints)((w & 0x7fffffffu) > 0x7f800000u);
  const Words bits = ((Words)is_nan & quiet) | (~(Words)is_nan & rounded);
  return __builtin_convertvector(bits, Halves);
}
inline Halves to_halves(Floats v) {
#ifdef __AVX512BF16__
  // The instruction takes subnormal numbers for zero; with none among the lanes it agrees.
  constexpr int kSubnormal = 0x20;
  if (__builtin_expect(_mm512_fpclass_ps_mask((__m512)v, kSubnormal) == 0, 1)) {
    return (Halves)_mm512_cvtneps_pbh((__m512)v);
  }
#endif
  return round_to_halves(v);
}
inline void store(bf16* p, Floats v) {
  const Halves h = to_halves(v);
  std::memcpy(p, &h, sizeof h);
}

// f16, exact on the way in and rounded to nearest even on the way out; the same bits as
// turbogr::f16(float) but for the payload of a NaN.
inline Floats load(const f16* p) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  Halves h;
  std::memcpy(&h, p, sizeof h);
  const Words w = __builtin_convertvector(h, Words);
  const Words magnitude = w & 0x7fffu;
  // Exponents move from bias 15 to 127; subnormal numbers come out normal.
  const Words finite = (Words)((Floats)(magnitude << 13) * 0x1p112f);
  const Words special = (Words)(magnitude >= 0x7c00u) & 0x7f800000u;  // infinity and NaN
  return (Floats)(finite | special | ((w & 0x8000u) << 16));
#endif
}
inline void store(f16* p, Floats v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  const Words w = (Words)v;
  const Words magnitude = w & 0x7fffffffu;
  const Words normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 lets the adder round what becomes subnormal.
  const Words small = (Words)((Floats)magnitude + 0.5f) - 0x3f000000u;
  const Words is_small = (Words)(magnitude < 0x38800000u);
  const Words is_large = (Words)(magnitude >= 0x477ff000u);  // rounds past 65504, or infinite
  const Words is_nan = (Words)(magnitude > 0x7f800000u);
  Words bits = (is_small & small) | (~is_small & normal);
  bits = (is_large & 0x7c00u) | (~is_large & bits);
  bits = (is_nan & 0x7e00u) | (~is_nan & bits);
  const Halves h = __builtin_convertvector(bits | ((w >> 16) & 0x8000u), Halves);
  std::memcpy(p, &h, sizeof h);
#endif
}

// Tails: the first `count` < kLanes elements; lanes past them read as zero and are not written.
template <class T>
inline Floats load_first(const T* p, std::int64_t count) {
  T buffer[kLanes] = {};
  std::memcpy(static_cast<void*>(buffer), p, static_cast<std::size_t>(count) * sizeof(T));
  return load(buffer);
}
template <class T>
inline void store_first(T* p, Floats v, std::int64_t count) {
  T buffer[kLanes];
  store(buffer, v);
  std::memcpy(static_cast<void*>(p), buffer, static_cast<std::size_t>(count) * sizeof(T));
}

// The processor's own masks where it has them: a copy of unknown length costs more than a row.
#if defined(__AVX512F__)
inline __mmask16 first_mask(std::int64_t count) {
  return static_cast<__mmask16>((1u << count) - 1u);
}
template <>
inline Floats load_first(const float* p, std::int64_t count) {
  return (Floats)_mm512_maskz_loadu_ps(first_mask(count), p);
}
template <>
inline void store_first(float* p, Floats v, std::int64_t count) {
  _mm512_mask_storeu_ps(p, first_mask(count), (__m512)v);
}
template <>
inline Floats load_first(const bf16* p, std::int64_t count) {
  const Halves h = (Halves)_mm256_maskz_loadu_epi16(first_mask(count), p);
  return (Floats)(__builtin_convertvector(h, Words) << 16);
}
template <>
inline void store_first(bf16* p, Floats v, std::int64_t count) {
  _mm256_mask_storeu_epi16(p, first_mask(count), (__m256i)to_halves(v));
}
template <>
inline Floats load_first(const f16* p, std::int64_t count) {
  return (Floats)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_mask(count), p));
}
inline Floats keep_first(Floats v, std::int64_t count) {
  return (Floats)_mm512_maskz_mov_ps(first_mask(count), (__m512)v);
}
#else
inline Ints first_mask(std::int64_t count) {
#if defined(__AVX2__)
  constexpr Ints kLane = {0, 1, 2, 3, 4, 5, 6, 7};
#else
  constexpr Ints kLane = {0, 1, 2, 3};
#endif
  return kLane < static_cast<std::int32_t>(count);
}
#if defined(__AVX2__)
template <>
inline Floats load_first(const float* p, std::int64_t count) {
  return (Floats)_mm256_maskload_ps(p, (__m256i)first_mask(count));
}
template <>
inline void store_first(float* p, Floats v, std::int64_t count) {
  _mm256_maskstore_ps(p, (__m256i)first_mask(count), (__m256)v);
}
#endif
inline Floats keep_first(Floats v, std::int64_t count) {
  return (Floats)((Ints)v & first_mask(count));
}
#endif

inline Floats select(Ints mask, Floats yes, Floats no) {
  return (Floats)(((Ints)yes & mask) | ((Ints)no & ~mask));
}
inline Floats min(Floats a, Floats b) { return select(a < b, a, b); }
inline Floats max(Floats a, Floats b) { return select(a > b, a, b); }

// A fixed tree, halves onto each other: the same bits at every call.
inline float sum(Floats v) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  const __m256 eight = _mm512_castps512_ps256((__m512)v) + _mm512_extractf32x8_ps((__m512)v, 1);
#else
  const __m256 eight = (__m256)v;
#endif
  const __m128 four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
  const __m128 two = four + _mm_movehl_ps(four, four);
  return two[0] + two[1];
#else
  return (v[0] + v[2]) + (v[1] + v[3]);
#endif
}

// e^(x - n ln2), x - n ln2 being at most ln2 / 2 in magnitude.
inline Floats exp_polynomial(Floats x, Floats n) {
  Floats r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Floats p = splat(1.3814321e-3f);
  p = p * r + 8.3688507e-3f;
  p = p * r + 4.1668400e-2f;
  p = p * r + 1.6666520e-1f;
  p = p * r + 4.9999994e-1f;
  return p * r * r + r + 1.0f;
}

// e^x to 1 ulp: x = n ln2 + r, a degree-6 polynomial in r (least relative error on |r| <= ln2 /
// 2), n added to the exponent. Below -87.3 the result is 0 within f32's smallest normal number;
// above 88.7 it is infinite; NaN stays NaN.
inline Floats exp(Floats x) {
#ifdef __AVX512F__
  // min and max hand on their second operand when one is NaN; scalef overflows to infinity.
  const __m512 v = (__m512)x;
  const __m512 low = _mm512_set1_ps(-87.33f);
  const __m512 clamped = _mm512_max_ps(low, _mm512_min_ps(_mm512_set1_ps(89.0f), v));
  const Floats n = (Floats)_mm512_roundscale_ps(clamped * 1.44269504088896341f,
                                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const Floats p = exp_polynomial((Floats)clamped, n);
  const __mmask16 above = _mm512_cmp_ps_mask(v, low, _CMP_NLT_UQ);
  return (Floats)_mm512_maskz_scalef_ps(above, (__m512)p, (__m512)n);
#elif defined(__AVX2__)
  // As above; the exponent is added as an integer, which between these bounds stays a normal
  // number.
  const __m256 v = (__m256)x;
  const __m256 low = _mm256_set1_ps(-87.33f), high = _mm256_set1_ps(88.72f);
  const __m256 clamped = _mm256_max_ps(low, _mm256_min_ps(high, v));
  const Floats shifted =
      (Floats)clamped * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23 rounds to integer
  const Ints p = (Ints)exp_polynomial((Floats)clamped, shifted - 12582912.0f);
  const __m256 scaled = (__m256)(p + ((Ints)shifted << 23));
  const __m256 above = _mm256_cmp_ps(v, low, _CMP_NLT_UQ);
  // Past the upper bound infinity, and NaN where x is.
  const __m256 beyond = _mm256_cmp_ps(v, high, _CMP_NLE_UQ);
  return (Floats)_mm256_blendv_ps(_mm256_and_ps(above, scaled),
                                  v * _mm256_set1_ps(__builtin_inff()), beyond);
#else
  const Floats clamped = min(max(x, splat(-87.33f)), splat(88.72f));
  const Floats shifted =
      clamped * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23 rounds to integer
  const Floats n = shifted - 12582912.0f;
  const Floats p = exp_polynomial(clamped, n);
  const Ints exponent = (Ints)shifted - 0x4b400000;
  // Two halves of the exponent, so that e^88.7 does not overflow on the way.
  const Ints low = exponent >> 1;
  const Floats scaled = p * (Floats)((low + 127) << 23) * (Floats)((exponent - low + 127) << 23);
  Floats result = select(x < splat(-87.33f), splat(0.0f), scaled);
  result = select(x > splat(88.72f), splat(__builtin_inff()), result);
  return select(x != x, x, result);
#endif
}

inline Floats sigmoid(Floats x) { return 1.0f / (1.0f + exp(-x)); }
inline Floats silu(Floats x) { return x * sigmoid(x); }
// d silu(x) / dx, given s = sigmoid(x).
inline Floats silu_slope(Floats x, Floats s) { return s * (1.0f + x * (1.0f - s)); }

}  // namespace
}  // namespace turbogr::TGR_SIMD
