// The small matrix product that attention is made of. For x_simd.cc files.
#pragma once

#include "turbogr/core/simd.h"

namespace turbogr::TGR_SIMD {
namespace {

#if defined(__AVX512BF16__)
constexpr bool kMachineHasPairs = true;
#else
constexpr bool kMachineHasPairs = false;
#endif

// Whether matrices of T are multiplied two elements at a time. Otherwise bf16 becomes f32 on
// packing.
template <class T>
constexpr bool kPairs = kMachineHasPairs && sizeof(T) == 2;

// Words that `count` elements of T take along the dimension a product sums over.
template <class T>
constexpr std::int64_t words_of(std::int64_t count) {
  return kPairs<T> ? (count + 1) / 2 : count;
}

constexpr std::int64_t vectors_of(std::int64_t count) { return (count + kLanes - 1) / kLanes; }

inline Floats broadcast(const float* word) {
  std::uint32_t bits;
  std::memcpy(&bits, word, sizeof bits);
  return (Floats)(Words{} + bits);
}

template <bool kPair>
inline Floats multiply_add(Floats sum, Floats a, Floats b) {
#if defined(__AVX512BF16__)
  if constexpr (kPair) return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#endif
  return sum + a * b;
}

// c [rows, vectors] = or += a [rows, depth] b [depth, vectors]. a(r, k) is the word at r * a_row +
// k * a_depth, so a transposed left side costs nothing.
struct Product {
  std::int64_t rows, vectors, depth;
  const float* a;
  std::int64_t a_row, a_depth;
  const float* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
};

// Without the unrolling gcc sends the sums through the stack before and after the loop. What c held
// is added at the end, where the next block's first steps hide the loads.
template <bool kPair, bool kAdd, int kRows, int kVectors>
inline void multiply_block(const Product& p, const float* a, const float* b, float* c) {
  Floats sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Floats{};
  }
  const std::int64_t a_row = p.a_row;
  const std::int64_t a_depth = p.a_depth;
  const std::int64_t b_stride = p.b_stride;
  for (std::int64_t k = p.depth; k > 0; --k) {
    Floats right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Floats left = broadcast(a + r * a_row);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = multiply_add<kPair>(sum[r][v], left, right[v]);
      }
    }
    a += a_depth;
    b += b_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* target = c + r * p.c_stride + v * kLanes;
      store(target, kAdd ? load(target) + sum[r][v] : sum[r][v]);
    }
  }
}

// 24 sums of the 32 registers of AVX-512, 12 of 16 elsewhere.
constexpr int kBlockRows = 6;
constexpr int kBlockVectors = kLanes == 16 ? 4 : 2;

template <bool kPair, bool kAdd, int kVectors>
inline void multiply_columns(const Product& p, std::int64_t first_vector) {
  const float* b = p.b + first_vector * kLanes;
  float* c = p.c + first_vector * kLanes;
  std::int64_t r = 0;
  for (; r + kBlockRows <= p.rows; r += kBlockRows) {
    multiply_block<kPair, kAdd, kBlockRows, kVectors>(p, p.a + r * p.a_row, b, c + r * p.c_stride);
  }
  if (r + 4 <= p.rows) {
    multiply_block<kPair, kAdd, 4, kVectors>(p, p.a + r * p.a_row, b, c + r * p.c_stride);
    r += 4;
  }
  if (r + 2 <= p.rows) {
    multiply_block<kPair, kAdd, 2, kVectors>(p, p.a + r * p.a_row, b, c + r * p.c_stride);
    r += 2;
  }
  if (r < p.rows) {
    multiply_block<kPair, kAdd, 1, kVectors>(p, p.a + r * p.a_row, b, c + r * p.c_stride);
  }
}

template <bool kPair, bool kAdd>
__attribute__((noinline)) void multiply(const Product& p) {
  std::int64_t v = 0;
  for (; v + kBlockVectors <= p.vectors; v += kBlockVectors) {
    multiply_columns<kPair, kAdd, kBlockVectors>(p, v);
  }
  if constexpr (kBlockVectors == 4) {
    if (v + 2 <= p.vectors) {
      multiply_columns<kPair, kAdd, 2>(p, v);
      v += 2;
    }
  }
  if (v < p.vectors) multiply_columns<kPair, kAdd, 1>(p, v);
}

}  // namespace
}  // namespace turbogr::TGR_SIMD
