// Brings blocks of up to 64 matrix rows into the word layouts that attention_gemm_simd.h
// multiplies. Everything that is not data is zero.
#pragma once

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

#if defined(__AVX512BF16__)
typedef std::uint16_t Halves2 __attribute__((vector_size(kLanes * 4)));

// Words of two rows, element by element side by side.
inline void store_pairs(float* words, Halves2 low, Halves2 high) {
  Halves2 first, second;
  for (int i = 0; i < 2 * kLanes; ++i) {
    first[i] = static_cast<std::uint16_t>(i / 2 + (i % 2) * 2 * kLanes);
    second[i] = static_cast<std::uint16_t>(first[i] + kLanes);
  }
  store(words, (Floats)__builtin_shuffle(low, high, first));
  store(words + kLanes, (Floats)__builtin_shuffle(low, high, second));
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
inline void transpose_vectors(Floats (&rows)[kLanes]) {
  for (int step = 1; step < kLanes; step *= 2) {
    Ints low, high;
    for (int lane = 0; lane < kLanes; ++lane) {
      low[lane] = (lane & step) == 0 ? lane : kLanes + lane - step;
      high[lane] = (lane & step) == 0 ? lane + step : kLanes + lane;
    }
    for (int r = 0; r < kLanes; ++r) {
      if ((r & step) != 0) continue;
      const Floats a = rows[r];
      const Floats b = rows[r + step];
      rows[r] = __builtin_shuffle(a, b, low);
      rows[r + step] = __builtin_shuffle(a, b, high);
    }
  }
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
