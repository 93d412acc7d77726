#include "turbogr/ops/rows/update_simd.h"

#include "turbogr/core/simd.h"

namespace turbogr::TGR_SIMD {
namespace {

inline Floats square_root(Floats x) {
#if defined(__AVX512F__)
  // The masked form: GCC 12 warns of an uninitialised operand inside the plain one.
  return (Floats)_mm512_maskz_sqrt_ps(0xffff, (__m512)x);
#elif defined(__AVX2__)
  return (Floats)_mm256_sqrt_ps((__m256)x);
#else
  for (int lane = 0; lane < kLanes; ++lane) x[lane] = __builtin_sqrtf(x[lane]);
  return x;
#endif
}

void adamw(const AdamWCoefficients& k, const float* gradient, std::int64_t count, float* weight,
           float* first_moment, float* second_moment) {
  const auto step = [&](Floats w, Floats g, Floats& m, Floats& v) {
    g = g * k.gradient_scale;
    m = m * k.beta1 + g * (1.0f - k.beta1);
    v = v * k.beta2 + g * g * (1.0f - k.beta2);
    return w - w * k.decay - m * k.step_size / (square_root(v * k.second_scale) + k.epsilon);
  };
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Floats m = load(first_moment + i);
    Floats v = load(second_moment + i);
    store(weight + i, step(load(weight + i), load(gradient + i), m, v));
    store(first_moment + i, m);
    store(second_moment + i, v);
  }
  const std::int64_t left = count - i;
  if (left > 0) {
    Floats m = load_first(first_moment + i, left);
    Floats v = load_first(second_moment + i, left);
    const Floats w = step(load_first(weight + i, left), load_first(gradient + i, left), m, v);
    store_first(weight + i, w, left);
    store_first(first_moment + i, m, left);
    store_first(second_moment + i, v, left);
  }
}

void descend(float keep, float step, const float* gradient, std::int64_t count, float* weight) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(weight + i, load(weight + i) * keep - load(gradient + i) * step);
  }
  for (; i < count; ++i) weight[i] = weight[i] * keep - gradient[i] * step;
}

double squared_sum(const float* values, std::int64_t count) {
  double total = 0;
  // Short f32 runs, summed in f64: neither slow nor inexact.
  constexpr std::int64_t kRun = 64 * kLanes;
  for (std::int64_t begin = 0; begin < count; begin += kRun) {
    const std::int64_t end = begin + kRun < count ? begin + kRun : count;
    Floats lanes = splat(0.0f);
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      const Floats x = load(values + i);
      lanes += x * x;
    }
    if (i < end) {
      const Floats x = load_first(values + i, end - i);
      lanes += x * x;
    }
    total += static_cast<double>(sum(lanes));
  }
  return total;
}

constexpr UpdateTable kTable = {adamw, descend, squared_sum};

}  // namespace

const UpdateTable& update_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
