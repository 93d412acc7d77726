#include "turbogr/ops/softmax/tile_simd.h"

#include "turbogr/core/simd.h"

namespace turbogr::TGR_SIMD {
namespace {

// Accumulators: 6 x 4 of 32 registers with AVX-512; 4 x 2 of 16 otherwise.
#if defined(__AVX512F__)
constexpr int kRows = 6;
constexpr int kVectors = 4;
#else
constexpr int kRows = 4;
constexpr int kVectors = 2;
#endif

template <int kM, int kN>
inline void micro(const TileProduct& t, std::int64_t m, std::int64_t n) {
  Floats sums[kM][kN];
  for (int i = 0; i < kM; ++i) {
    for (int v = 0; v < kN; ++v) {
      sums[i][v] = t.accumulate ? load(t.c + (m + i) * t.c_row + n + v * kLanes) : Floats{};
    }
  }
  const float* a = t.a + m * t.a_row;
  const float* b = t.b + n;
  const std::int64_t a_row = t.a_row;
  const std::int64_t a_depth = t.a_depth;
  const std::int64_t b_depth = t.b_depth;
  for (std::int64_t k = t.depth; k > 0; --k) {
    Floats columns[kN];
    for (int v = 0; v < kN; ++v) columns[v] = load(b + v * kLanes);
    for (int i = 0; i < kM; ++i) {
      const Floats x = splat(a[i * a_row]);
      for (int v = 0; v < kN; ++v) sums[i][v] += x * columns[v];
    }
    a += a_depth;
    b += b_depth;
  }
  for (int i = 0; i < kM; ++i) {
    for (int v = 0; v < kN; ++v) store(t.c + (m + i) * t.c_row + n + v * kLanes, sums[i][v]);
  }
}

template <int kN>
inline void product_columns(const TileProduct& t, std::int64_t n) {
  std::int64_t m = 0;
  for (; m + kRows <= t.rows; m += kRows) micro<kRows, kN>(t, m, n);
  for (; m + 2 <= t.rows; m += 2) micro<2, kN>(t, m, n);
  for (; m < t.rows; ++m) micro<1, kN>(t, m, n);
}

void product(const TileProduct& t) {
  std::int64_t n = 0;
  for (; n + kVectors * kLanes <= t.cols; n += kVectors * kLanes) product_columns<kVectors>(t, n);
  for (; n < t.cols; n += kLanes) product_columns<1>(t, n);
}

inline Ints load_ints(const std::int32_t* p) {
  Ints v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline Floats logits(const LogitRow& row, std::int64_t i) {
  const Ints masked = load_ints(row.candidates + i) == row.positive;
  return select(masked, splat(-__builtin_inff()), load(row.scores + i) - load(row.correction + i));
}

void add_exp(const LogitRow& row, float* running_max, float* running_sum) {
  Floats largest = splat(*running_max);
  for (std::int64_t i = 0; i < row.count; i += kLanes) {
    const Floats logit = logits(row, i);
    store(row.scores + i, logit);
    largest = max(largest, logit);
  }
  float new_max = largest[0];
  for (int lane = 1; lane < kLanes; ++lane) {
    new_max = largest[lane] > new_max ? largest[lane] : new_max;
  }
  Floats total = {};
  for (std::int64_t i = 0; i < row.count; i += kLanes) {
    total += exp(load(row.scores + i) - new_max);
  }
  const float rescale = exp(splat(*running_max - new_max))[0];
  *running_sum = *running_sum * rescale + sum(total);
  *running_max = new_max;
}

void softmax_gradient(const LogitRow& row, float log_sum_exp, float weight) {
  for (std::int64_t i = 0; i < row.count; i += kLanes) {
    store(row.scores + i, exp(logits(row, i) - log_sum_exp) * weight);
  }
}

bool all_finite(const float* x, std::int64_t count) {
  Floats zeros = {};  // 0 * x is 0 for a finite x and NaN otherwise
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) zeros += load(x + i) * 0.0f;
  float total = sum(zeros);
  for (; i < count; ++i) total += x[i] * 0.0f;
  return total == 0.0f;
}

inline bool any(Ints mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps((__m256)mask) != 0;
#else
  return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
#endif
}

std::int64_t above(const float* x, std::int64_t count, float threshold, std::int32_t* columns) {
  std::int64_t found = 0;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    if (!any(load(x + i) > splat(threshold))) continue;
    for (std::int64_t j = i; j < i + kLanes; ++j) {
      if (x[j] > threshold) columns[found++] = static_cast<std::int32_t>(j);
    }
  }
  for (; i < count; ++i) {
    if (x[i] > threshold) columns[found++] = static_cast<std::int32_t>(i);
  }
  return found;
}

std::int64_t count_above(const float* x, std::int64_t count, float threshold) {
  Ints counts = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) counts -= load(x + i) > splat(threshold);
  std::int64_t total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += counts[lane];
  for (; i < count; ++i) total += x[i] > threshold ? 1 : 0;
  return total;
}

float chain_dot(const float* x, const float* y, std::int64_t width) {
  float total = 0.0f;
  for (std::int64_t c = 0; c < width; ++c) {
#if defined(__FMA__)
    // Said outright: a vectorised product would round before it adds.
    total = __builtin_fmaf(x[c], y[c], total);
#else
    total += x[c] * y[c];
#endif
  }
  return total;
}

constexpr TileTable kTable = {product, add_exp,     softmax_gradient, all_finite,
                              above,   count_above, chain_dot};

}  // namespace

const TileTable& tile_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
