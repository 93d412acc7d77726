#include "turbogr/ops/rows/row_simd.h"

#include "turbogr/ops/dense/row_walk_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

#if defined(__AVX2__)
// The first eight lanes' worth of sum(): halves onto each other.
inline __m256 half_sum(Floats v) {
#if defined(__AVX512F__)
  return _mm512_castps512_ps256((__m512)v) + _mm512_extractf32x8_ps((__m512)v, 1);
#else
  return (__m256)v;
#endif
}
#endif

// out[r] = sum(sums[r]), the same bits; eight of them share their steps.
template <int kRows>
inline void fold(const Floats (&sums)[kRows], float* out) {
#if defined(__AVX2__)
  if constexpr (kRows == 8) {
    __m256 pairs[4];  // two rows' four lanes each
    for (int i = 0; i < 4; ++i) {
      const __m256 a = half_sum(sums[2 * i]), b = half_sum(sums[2 * i + 1]);
      pairs[i] = _mm256_permute2f128_ps(a, b, 0x20) + _mm256_permute2f128_ps(a, b, 0x31);
    }
    __m256 fours[2];  // rows 0 2 | 1 3 and 4 6 | 5 7, two lanes each
    for (int i = 0; i < 2; ++i) {
      const __m256 a = pairs[2 * i], b = pairs[2 * i + 1];
      fours[i] = _mm256_shuffle_ps(a, b, 0x44) + _mm256_shuffle_ps(a, b, 0xee);
    }
    const __m256 rows =
        _mm256_shuffle_ps(fours[0], fours[1], 0x88) + _mm256_shuffle_ps(fours[0], fours[1], 0xdd);
    // rows is 0 2 4 6 | 1 3 5 7.
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(rows, order));
    return;
  }
#endif
  for (int r = 0; r < kRows; ++r) out[r] = sum(sums[r]);
}

// kRows dot products at once, so that the query is loaded once for all of them.
template <int kRows, class T>
inline void dot_block(const float* query, const T* const* rows, const T* const* next,
                      std::int64_t width, float* out) {
  constexpr std::int64_t kLine = static_cast<std::int64_t>(64 / sizeof(T));
  Floats sums[kRows] = {};
  std::int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    if (c % kLine == 0) {
      for (int r = 0; r < kRows; ++r) __builtin_prefetch(next[r] + c);
    }
    const Floats q = load(query + c);
    for (int r = 0; r < kRows; ++r) sums[r] += q * load(rows[r] + c);
  }
  if (c < width) {
    const Floats q = load_first(query + c, width - c);
    for (int r = 0; r < kRows; ++r) sums[r] += q * load_first(rows[r] + c, width - c);
  }
  fold(sums, out);
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

// A strip of the output stays in registers while the rows pass by: kVectors vectors, the last of
// which has `last` lanes.
template <int kVectors, class Lanes, class T>
inline void add_strip(const T* rows, std::int64_t stride, const std::int32_t* index,
                      const float* weights, std::int64_t count, Lanes last, float* out) {
  constexpr int kWhole = kVectors - 1;
  Floats sums[kVectors];
  for (int v = 0; v < kWhole; ++v) sums[v] = load(out + v * kLanes);
  sums[kWhole] = last.load(out + kWhole * kLanes);
  for (std::int64_t j = 0; j < count; ++j) {
    const T* row = rows + index[j] * stride;
    if (j + 4 < count) {
      const T* ahead = rows + index[j + 4] * stride;
      constexpr int kLine = static_cast<int>(64 / sizeof(T));
      for (int p = 0; p < kVectors * kLanes; p += kLine) __builtin_prefetch(ahead + p);
    }
    if (weights == nullptr) {
      for (int v = 0; v < kWhole; ++v) sums[v] += load(row + v * kLanes);
      sums[kWhole] += last.load(row + kWhole * kLanes);
    } else {
      const Floats w = splat(weights[j]);
      for (int v = 0; v < kWhole; ++v) sums[v] += w * load(row + v * kLanes);
      sums[kWhole] += w * last.load(row + kWhole * kLanes);
    }
  }
  for (int v = 0; v < kWhole; ++v) store(out + v * kLanes, sums[v]);
  last.store(out + kWhole * kLanes, sums[kWhole]);
}

template <int kVectors, class T>
inline void add_last_strip(const T* rows, std::int64_t stride, const std::int32_t* index,
                           const float* weights, std::int64_t count, std::int64_t cols,
                           float* out) {
  const std::int64_t last = cols - (kVectors - 1) * kLanes;
  if (last == kLanes) {
    add_strip<kVectors>(rows, stride, index, weights, count, WholeLanes{}, out);
  } else {
    add_strip<kVectors>(rows, stride, index, weights, count, FirstLanes{last}, out);
  }
}

template <class T>
void add_rows(const T* rows, std::int64_t stride, const std::int32_t* index, const float* weights,
              std::int64_t count, std::int64_t width, float* out) {
  std::int64_t c = 0;
  for (; c + 8 * kLanes <= width; c += 8 * kLanes) {
    add_strip<8>(rows + c, stride, index, weights, count, WholeLanes{}, out + c);
  }
  const auto rest = [&](auto add) {
    add(rows + c, stride, index, weights, count, width - c, out + c);
  };
  switch ((width - c + kLanes - 1) / kLanes) {
    case 8:
      return rest(add_last_strip<8, T>);
    case 7:
      return rest(add_last_strip<7, T>);
    case 6:
      return rest(add_last_strip<6, T>);
    case 5:
      return rest(add_last_strip<5, T>);
    case 4:
      return rest(add_last_strip<4, T>);
    case 3:
      return rest(add_last_strip<3, T>);
    case 2:
      return rest(add_last_strip<2, T>);
    case 1:
      return rest(add_last_strip<1, T>);
    default:
      return;
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
    const Floats v = load_first(x + c, width - c);
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
    const Floats v = load_first(x + c, width - c);
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
  if (c < width) store_first(y + c, load_first(x + c, width - c) * scale, width - c);
}

float dot(const float* x, const float* y, std::int64_t width) {
  Floats total = {};
  std::int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) total += load(x + c) * load(y + c);
  if (c < width) total += load_first(x + c, width - c) * load_first(y + c, width - c);
  return sum(total);
}

void axpy(float a, const float* x, std::int64_t width, float* y) {
  std::int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) store(y + c, load(y + c) + load(x + c) * a);
  if (c < width) {
    store_first(y + c, load_first(y + c, width - c) + load_first(x + c, width - c) * a, width - c);
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
    store_first(x + i, exp(load_first(x + i, left) - shift), left);
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
