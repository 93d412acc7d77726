#include "turbogr/ops/rows/row_simd.h"

#include "turbogr/core/simd.h"

namespace turbogr::TGR_SIMD {
namespace {

// Tails by mask where the instruction set has masks: rows of 50 are common and tails show.
inline Floats load_tail(const float* p, std::int64_t count) {
#if defined(__AVX512F__)
  return (Floats)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), p);
#else
  return load_first(p, count);
#endif
}
inline Floats load_tail(const bf16* p, std::int64_t count) {
#if defined(__AVX512F__)
  const auto mask = static_cast<__mmask16>((1u << count) - 1u);
  const Halves halves = (Halves)_mm256_maskz_loadu_epi16(mask, p);
  return (Floats)(__builtin_convertvector(halves, Words) << 16);
#else
  return load_first(p, count);
#endif
}
inline Floats load_tail(const f16* p, std::int64_t count) {
#if defined(__AVX512F__)
  const auto mask = static_cast<__mmask16>((1u << count) - 1u);
  return (Floats)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
#else
  return load_first(p, count);
#endif
}
inline void store_tail(float* p, Floats v, std::int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1u), (__m512)v);
#else
  store_first(p, v, count);
#endif
}
inline void store_tail(bf16* p, Floats v, std::int64_t count) { store_first(p, v, count); }
inline void store_tail(f16* p, Floats v, std::int64_t count) { store_first(p, v, count); }

// sum(v), in registers: rows are short enough that the fold of each dot product shows.
inline float fold(Floats v) {
#if defined(__AVX512F__)
  const auto eight = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
                    __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  const auto two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1);
  return two[0] + two[1];
#else
  return sum(v);
#endif
}

// kRows dot products at once, so that the query is loaded once for all of them.
template <int kRows, class T>
inline void dot_block(const float* query, const T* const* rows, const T* const* next,
                      std::int64_t width, float* out) {
  Floats sums[kRows] = {};
  std::int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    const Floats q = load(query + c);
    for (int r = 0; r < kRows; ++r) {
      __builtin_prefetch(next[r] + c);
      sums[r] += q * load(rows[r] + c);
    }
  }
  if (c < width) {
    const Floats q = load_tail(query + c, width - c);
    for (int r = 0; r < kRows; ++r) sums[r] += q * load_tail(rows[r] + c, width - c);
  }
  for (int r = 0; r < kRows; ++r) out[r] = fold(sums[r]);
}

template <class T>
void dot_rows(const float* query, const T* rows, std::int64_t stride, const std::int32_t* index,
              std::int64_t count, std::int64_t width, float* out) {
  constexpr int kRows = 8;
  std::int64_t j = 0;
  for (; j + kRows <= count; j += kRows) {
    const T* here[kRows];
    const T* next[kRows];
    for (int r = 0; r < kRows; ++r) {
      here[r] = rows + index[j + r] * stride;
      const std::int64_t ahead = j + kRows + r < count ? j + kRows + r : j + r;
      next[r] = rows + index[ahead] * stride;
    }
    dot_block<kRows>(query, here, next, width, out + j);
  }
  for (; j < count; ++j) {
    const T* here = rows + index[j] * stride;
    dot_block<1>(query, &here, &here, width, out + j);
  }
}

// A strip of kVectors vectors of the output stays in registers while the rows pass by.
template <int kVectors, class T>
inline void add_strip(const T* rows, std::int64_t stride, const std::int32_t* index,
                      const float* weights, std::int64_t count, float* out) {
  Floats sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = load(out + v * kLanes);
  for (std::int64_t j = 0; j < count; ++j) {
    const T* row = rows + index[j] * stride;
    if (j + 4 < count) {
      const T* ahead = rows + index[j + 4] * stride;
      constexpr int kLine = static_cast<int>(64 / sizeof(T));
      for (int p = 0; p < kVectors * kLanes; p += kLine) __builtin_prefetch(ahead + p);
    }
    if (weights == nullptr) {
      for (int v = 0; v < kVectors; ++v) sums[v] += load(row + v * kLanes);
    } else {
      const Floats w = splat(weights[j]);
      for (int v = 0; v < kVectors; ++v) sums[v] += w * load(row + v * kLanes);
    }
  }
  for (int v = 0; v < kVectors; ++v) store(out + v * kLanes, sums[v]);
}

template <class T>
void add_rows(const T* rows, std::int64_t stride, const std::int32_t* index, const float* weights,
              std::int64_t count, std::int64_t width, float* out) {
  std::int64_t c = 0;
  for (; c + 8 * kLanes <= width; c += 8 * kLanes) {
    add_strip<8>(rows + c, stride, index, weights, count, out + c);
  }
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
    add_strip<2>(rows + c, stride, index, weights, count, out + c);
  }
  for (; c + kLanes <= width; c += kLanes) {
    add_strip<1>(rows + c, stride, index, weights, count, out + c);
  }
  if (c < width) {
    Floats total = load_tail(out + c, width - c);
    for (std::int64_t j = 0; j < count; ++j) {
      const Floats x = load_tail(rows + index[j] * stride + c, width - c);
      total += weights == nullptr ? x : splat(weights[j]) * x;
    }
    store_tail(out + c, total, width - c);
  }
}

template <class T>
float sum_of_squares(const T* x, std::int64_t width) {
  Floats total = {};
  std::int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    const Floats v = load(x + c);
    total += v * v;
  }
  if (c < width) {
    const Floats v = load_tail(x + c, width - c);
    total += v * v;
  }
  return sum(total);
}

template <class T>
float max_magnitude(const T* x, std::int64_t width) {
  Floats largest = {};
  std::int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    const Floats v = load(x + c);
    largest = max(max(v, -v), largest);
  }
  if (c < width) {
    const Floats v = load_tail(x + c, width - c);
    largest = max(max(v, -v), largest);
  }
  float result = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    result = largest[lane] > result ? largest[lane] : result;
  }
  return result;
}

template <class From, class To>
void scale_row(const From* x, float scale, std::int64_t width, To* y) {
  std::int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) store(y + c, load(x + c) * scale);
  if (c < width) store_tail(y + c, load_tail(x + c, width - c) * scale, width - c);
}

float dot(const float* x, const float* y, std::int64_t width) {
  Floats total = {};
  std::int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) total += load(x + c) * load(y + c);
  if (c < width) total += load_tail(x + c, width - c) * load_tail(y + c, width - c);
  return sum(total);
}

void axpy(float a, const float* x, std::int64_t width, float* y) {
  std::int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) store(y + c, load(y + c) + load(x + c) * a);
  if (c < width) {
    store_tail(y + c, load_tail(y + c, width - c) + load_tail(x + c, width - c) * a, width - c);
  }
}

float max_of(const float* x, std::int64_t count) {
  Floats largest = splat(-__builtin_inff());
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) largest = max(largest, load(x + i));
  float result = -__builtin_inff();
  for (; i < count; ++i) result = x[i] > result ? x[i] : result;
  for (int lane = 0; lane < kLanes; ++lane) {
    result = largest[lane] > result ? largest[lane] : result;
  }
  return result;
}

float exp_minus(float* x, std::int64_t count, float shift) {
  Floats total = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats value = exp(load(x + i) - shift);
    store(x + i, value);
    total += value;
  }
  float result = sum(total);
  if (i < count) {
    const std::int64_t left = count - i;
    store_tail(x + i, exp(load_tail(x + i, left) - shift), left);
    for (; i < count; ++i) result += x[i];
  }
  return result;
}

template <class T>
constexpr RowKernels<T> kernels_of() {
  return {dot_rows<T>,      add_rows<T>,         sum_of_squares<T>,
          max_magnitude<T>, scale_row<T, float>, scale_row<float, T>};
}

constexpr RowTable kTable = {
    kernels_of<float>(), kernels_of<bf16>(), kernels_of<f16>(), dot, axpy, max_of, exp_minus};

}  // namespace

const RowTable& row_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
