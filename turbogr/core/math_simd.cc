#include "turbogr/core/math_simd.h"

#include "turbogr/core/simd.h"

namespace turbogr::TGR_SIMD {
namespace {

template <class Out, class Function>
inline void over_array(std::int64_t count, const float* x, Out* y, Function function) {
  std::int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) store(y + c, function(load(x + c)));
  if (c < count) store_first(y + c, function(load_first(x + c, count - c)), count - c);
}

void exp_of(std::int64_t count, const float* x, float* y) {
  over_array(count, x, y, [](Floats v) { return exp(v); });
}
void sigmoid_of(std::int64_t count, const float* x, float* y) {
  over_array(count, x, y, [](Floats v) { return sigmoid(v); });
}
void silu_of(std::int64_t count, const float* x, float* y) {
  over_array(count, x, y, [](Floats v) { return silu(v); });
}
void silu_slope_of(std::int64_t count, const float* x, float* y) {
  over_array(count, x, y, [](Floats v) { return silu_slope(v, sigmoid(v)); });
}

void to_bf16(std::int64_t count, const float* x, bf16* y) {
  over_array(count, x, y, [](Floats v) { return v; });
}

constexpr MathTable kTable = {exp_of, sigmoid_of, silu_of, silu_slope_of, to_bf16};

}  // namespace

const MathTable& math_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
