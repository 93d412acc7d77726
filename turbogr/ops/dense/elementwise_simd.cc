#include "turbogr/ops/dense/elementwise_simd.h"

#include "turbogr/ops/dense/row_walk_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

template <class T>
void swiglu_row(std::int64_t cols, const T* a, const T* b, T* y) {
  over_row(cols, [&](auto lanes, std::int64_t c) {
    lanes.store(y + c, silu(lanes.load(a + c)) * lanes.load(b + c));
  });
}

template <class T>
void swiglu_row_backward(std::int64_t cols, const T* a, const T* b, const T* dy, T* da, T* db) {
  over_row(cols, [&](auto lanes, std::int64_t c) {
    const Floats x = lanes.load(a + c);
    const Floats up = lanes.load(b + c);
    const Floats d = lanes.load(dy + c);
    const Floats s = sigmoid(x);
    lanes.store(da + c, d * up * silu_slope(x, s));
    lanes.store(db + c, d * x * s);
  });
}

template <class T>
void silu_row(std::int64_t cols, const T* x, T* y) {
  over_row(cols, [&](auto lanes, std::int64_t c) { lanes.store(y + c, silu(lanes.load(x + c))); });
}

template <class T>
void silu_row_backward(std::int64_t cols, const T* x, const T* dy, T* dx) {
  over_row(cols, [&](auto lanes, std::int64_t c) {
    const Floats at = lanes.load(x + c);
    lanes.store(dx + c, lanes.load(dy + c) * silu_slope(at, sigmoid(at)));
  });
}

template <class T>
float l2_normalize_row(std::int64_t cols, float eps, const T* x, T* y) {
  Floats squares = splat(0.0f);
  over_row(cols, [&](auto lanes, std::int64_t c) {
    const Floats v = lanes.load(x + c);
    squares += v * v;
  });
  const float length = __builtin_sqrtf(sum(squares));
  // Written so that a NaN length stays one.
  const float inverse = 1.0f / (length < eps ? eps : length);
  over_row(cols,
           [&](auto lanes, std::int64_t c) { lanes.store(y + c, lanes.load(x + c) * inverse); });
  return inverse;
}

template <class T>
void l2_normalize_row_backward(std::int64_t cols, float inverse, bool scaled, const T* x,
                               const T* dy, T* dx) {
  float along = 0.0f;
  if (!scaled) {
    Floats products = splat(0.0f);
    over_row(cols, [&](auto lanes, std::int64_t c) {
      products += lanes.load(x + c) * lanes.load(dy + c);
    });
    along = sum(products) * inverse * inverse;
  }
  over_row(cols, [&](auto lanes, std::int64_t c) {
    lanes.store(dx + c, (lanes.load(dy + c) - lanes.load(x + c) * along) * inverse);
  });
}

template <class T>
constexpr ElementwiseLoops<T> kLoops = {swiglu_row<T>,       swiglu_row_backward<T>,
                                        silu_row<T>,         silu_row_backward<T>,
                                        l2_normalize_row<T>, l2_normalize_row_backward<T>};

constexpr ElementwiseTable kTable = {kLoops<float>, kLoops<bf16>};

}  // namespace

const ElementwiseTable& elementwise_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
