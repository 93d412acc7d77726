// Brings blocks of up to 64 matrix rows into the word layouts that attention_gemm_simd.h
// multiplies. Everything that is not data is zero.
#pragma once

#include <utility>

#include "turbogr/ops/attention/cpu/attention_gemm_simd.h"
#include "turbogr/ops/attention/cpu/attention_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

#if defined(__AVX512F__)
// Tails under a mask; heads whose width is no multiple of a vector have one in every row.
inline Floats load_tail(const float* p, std::int64_t count) {
  return (Floats)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), p);
}
inline Floats load_tail(const bf16* p, std::int64_t count) {
  const auto mask = static_cast<__mmask16>((1u << count) - 1u);
  const Halves halves = (Halves)_mm256_maskz_loadu_epi16(mask, p);
  return (Floats)(__builtin_convertvector(halves, Words) << 16);
}
inline void store_tail(float* p, Floats value, std::int64_t count) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1u), (__m512)value);
}
inline void store_tail(bf16* p, Floats value, std::int64_t count) {
  const auto mask = static_cast<__mmask16>((1u << count) - 1u);
  _mm256_mask_storeu_epi16(p, mask, (__m256i)to_halves(value));
}
#else
template <class T>
inline Floats load_tail(const T* p, std::int64_t count) {
  return load_first(p, count);
}
template <class T>
inline void store_tail(T* p, Floats value, std::int64_t count) {
  store_first(p, value, count);
}
#endif

// The vector at `column` of a row `width` wide, zeros past its end.
template <class T>
inline Floats load_row(const T* row, std::int64_t column, std::int64_t width) {
  return column + kLanes <= width ? load(row + column) : load_tail(row + column, width - column);
}

template <class T>
inline void store_row(T* row, std::int64_t column, std::int64_t width, Floats value) {
  if (column + kLanes <= width) {
    store(row + column, value);
  } else {
    store_tail(row + column, value, width - column);
  }
}

// Left side: words(r, k) = row r's elements along k. `stride` must hold whole vectors.
template <class T>
inline void pack_rows(const T* source, std::int64_t source_stride, std::int64_t rows,
                      std::int64_t width, float* words, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = source + r * source_stride;
    float* target = words + r * stride;
    if constexpr (kPairs<T>) {
#if defined(__AVX512BF16__)
      for (std::int64_t c = 0; c < width; c += 2 * kLanes) {
        const std::int64_t left = width - c;
        const __mmask32 mask = left < 2 * kLanes ? (1u << left) - 1u : ~0u;
        store(target + c / 2, (Floats)_mm512_maskz_loadu_epi16(mask, row + c));
      }
#endif
    } else {
      for (std::int64_t c = 0; c < width; c += kLanes) {
        store(target + c, load_row(row, c, width));
      }
    }
  }
}

// Element l of the answer is element order(l) of `a` and, behind it, `b`.
template <class Vector, class Order, int... lane>
inline Vector shuffle(Vector a, Vector b, Order, std::integer_sequence<int, lane...>) {
  return __builtin_shufflevector(a, b, Order()(lane)...);
}

#if defined(__AVX512BF16__)
typedef std::uint16_t Halves2 __attribute__((vector_size(kLanes * 4)));

// Halves of `a` and `b` side by side, from half `first` of each on.
template <int first>
inline Halves2 interleave(Halves2 a, Halves2 b) {
  const auto order = [](int l) { return first + l / 2 + (l % 2) * 2 * kLanes; };
  return shuffle(a, b, order, std::make_integer_sequence<int, 2 * kLanes>());
}

// Words of two rows, element by element side by side.
inline void store_pairs(float* words, Halves2 low, Halves2 high) {
  store(words, (Floats)interleave<0>(low, high));
  store(words + kLanes, (Floats)interleave<kLanes>(low, high));
}
#endif

// Right side that sums over the rows: lines(r, c) = element c of row r (of rows 2r and 2r + 1).
template <class T>
inline void pack_lines(const T* source, std::int64_t source_stride, std::int64_t rows,
                       std::int64_t width, float* lines, std::int64_t stride) {
  for (std::int64_t r = 0; r < words_of<T>(rows); ++r) {
    float* target = lines + r * stride;
    if constexpr (kPairs<T>) {
      const T* low = source + 2 * r * source_stride;
      const bool alone = 2 * r + 1 == rows;
      std::int64_t c = 0;
#if defined(__AVX512BF16__)
      for (; !alone && c + 2 * kLanes <= width; c += 2 * kLanes) {
        Halves2 first, second;
        std::memcpy(&first, low + c, sizeof first);
        std::memcpy(&second, low + source_stride + c, sizeof second);
        store_pairs(target + c, first, second);
      }
#endif
      for (; c < width; c += kLanes) {
        // An f32 load of a bf16 has its bits in the upper half.
        const Words first = (Words)load_row(low, c, width) >> 16;
        const Words second = alone ? Words{} : (Words)load_row(low + source_stride, c, width);
        store(target + c, (Floats)(first | second));
      }
    } else {
      const T* row = source + r * source_stride;
      for (std::int64_t c = 0; c < width; c += kLanes) {
        store(target + c, load_row(row, c, width));
      }
    }
  }
}

// Lane l of vector r becomes lane r of vector l: stage by stage, blocks of `step` change places.
template <int step = 1>
inline void transpose_vectors(Floats (&rows)[kLanes]) {
  const auto low = [](int l) { return (l & step) == 0 ? l : kLanes + l - step; };
  const auto high = [](int l) { return (l & step) == 0 ? l + step : kLanes + l; };
  const auto lanes = std::make_integer_sequence<int, kLanes>();
  for (int r = 0; r < kLanes; ++r) {
    if ((r & step) != 0) continue;
    const Floats a = rows[r];
    const Floats b = rows[r + step];
    rows[r] = shuffle(a, b, low, lanes);
    rows[r + step] = shuffle(a, b, high, lanes);
  }
  if constexpr (2 * step < kLanes) transpose_vectors<2 * step>(rows);
}

// Right side that sums along the width: columns(k, r) = word k of row r; 64 rows apart.
inline void pack_columns(const float* words, std::int64_t stride, std::int64_t rows,
                         std::int64_t depth, float* columns) {
  for (std::int64_t r0 = 0; r0 < rows; r0 += kLanes) {
    const std::int64_t count = rows - r0 < kLanes ? rows - r0 : kLanes;
    for (std::int64_t k0 = 0; k0 < depth; k0 += kLanes) {
      Floats block[kLanes];
      for (int r = 0; r < kLanes; ++r) {
        block[r] = r < count ? load(words + (r0 + r) * stride + k0) : Floats{};
      }
      transpose_vectors(block);
      const std::int64_t deep = depth - k0 < kLanes ? depth - k0 : kLanes;
      for (std::int64_t k = 0; k < deep; ++k) {
        store(columns + (k0 + k) * kAttentionTile + r0, block[k]);
      }
    }
  }
}

}  // namespace
}  // namespace turbogr::TGR_SIMD
