#include "turbogr/ops/dense/norm_simd.h"

#include "turbogr/ops/dense/dropout_mask_simd.h"
#include "turbogr/ops/dense/row_walk_simd.h"

// A row is read from memory once: the second and third walk over it find it in cache.

namespace turbogr::TGR_SIMD {
namespace {

enum Output { kPlain, kGated, kConcat, kConcatInput, kSwish };  // as NormOutput

constexpr bool three_parts(int output) { return output == kConcat || output == kConcatInput; }

void draw_factors(const NormRow& row, std::int64_t width) {
  constexpr std::int64_t kChunk = 8 * kLanes;
  for (std::int64_t first = 0; first < width; first += kChunk) {
    dropout_factors(row.seed, row.row_key, row.site, first, row.threshold, row.scale,
                    row.factors + first);
  }
}

// The norm's value at c, and before its weights.
struct Normed {
  Floats hat, value;
};

template <class Lanes, class T>
inline Normed normed(const NormRow& row, Lanes lanes, const T* x, std::int64_t c) {
  Floats hat = lanes.load(x + c);
  if (row.layer) hat -= row.mean;
  hat *= row.rstd;
  Floats value = hat;
  if (row.weight != nullptr) value *= lanes.load(row.weight + c);
  if (row.bias != nullptr) value += lanes.load(row.bias + c);
  return {hat, value};
}

// dropout's factor times v, at column c of the output.
template <class Lanes>
inline Floats dropped(const NormRow& row, Lanes lanes, std::int64_t c, Floats v) {
  return row.threshold == 0 ? v : v * lanes.load(row.factors + c);
}

template <class T>
void set_statistics(NormRow& row, const T* x) {
  const float scale = 1.0f / static_cast<float>(row.cols);
  row.mean = 0.0f;
  if (row.layer) {
    Floats total = splat(0.0f);
    over_row(row.cols, [&](auto lanes, std::int64_t c) { total += lanes.load(x + c); });
    row.mean = sum(total) * scale;
  }
  Floats squares = splat(0.0f);
  over_row(row.cols, [&](auto lanes, std::int64_t c) {
    const Floats v = lanes.keep(lanes.load(x + c) - row.mean);
    squares += v * v;
  });
  row.rstd = 1.0f / __builtin_sqrtf(sum(squares) * scale + row.eps);
}

template <int kOutput, class T>
void forward(NormRow& row, const T* x, const T* gate, T* y) {
  set_statistics(row, x);
  const std::int64_t cols = row.cols;
  if (row.threshold != 0) draw_factors(row, three_parts(kOutput) ? 3 * cols : cols);
  over_row(cols, [&](auto lanes, std::int64_t c) {
    const Floats value = normed(row, lanes, x, c).value;
    if constexpr (kOutput == kPlain) {
      lanes.store(y + c, value);
    } else if constexpr (kOutput == kSwish) {
      lanes.store(y + c, lanes.load(x + c) * sigmoid(value));
    } else {
      Floats u = lanes.load(gate + c);
      if (row.silu_gate) u = silu(u);
      if constexpr (kOutput == kGated) {
        lanes.store(y + c, dropped(row, lanes, c, u * value));
      } else {
        lanes.store(y + c, dropped(row, lanes, c, u));
        const Floats middle = kOutput == kConcatInput ? lanes.load(x + c) : value;
        lanes.store(y + cols + c, dropped(row, lanes, cols + c, middle));
        lanes.store(y + 2 * cols + c, dropped(row, lanes, 2 * cols + c, u * value));
      }
    }
  });
}

template <int kOutput, class T>
void backward(const NormRow& row, const T* x, const T* gate, const T* dy, const T* residual, T* dx,
              T* dgate) {
  const std::int64_t cols = row.cols;
  if (row.threshold != 0) draw_factors(row, three_parts(kOutput) ? 3 * cols : cols);
  Floats total = splat(0.0f);
  Floats along = splat(0.0f);
  over_row(cols, [&](auto lanes, std::int64_t c) {
    const Normed at = normed(row, lanes, x, c);
    Floats d;  // the gradient of the norm's value
    if constexpr (kOutput == kPlain) {
      d = lanes.load(dy + c);
    } else if constexpr (kOutput == kSwish) {
      const Floats s = sigmoid(at.value);
      lanes.store(row.factors + c, s);  // for the last walk: no dropout wants the place
      d = lanes.load(dy + c) * lanes.load(x + c) * s * (1.0f - s);
    } else {
      Floats u = lanes.load(gate + c);
      Floats slope = splat(1.0f);
      if (row.silu_gate) {
        const Floats s = sigmoid(u);
        slope = silu_slope(u, s);
        u *= s;
      }
      if constexpr (kOutput == kGated) {
        const Floats dropped_dy = dropped(row, lanes, c, lanes.load(dy + c));
        lanes.store(dgate + c, dropped_dy * at.value * slope);
        d = dropped_dy * u;
      } else {
        const Floats du = dropped(row, lanes, c, lanes.load(dy + c));
        const Floats both = dropped(row, lanes, 2 * cols + c, lanes.load(dy + 2 * cols + c));
        lanes.store(dgate + c, (du + both * at.value) * slope);
        if constexpr (kOutput == kConcat) {
          d = dropped(row, lanes, cols + c, lanes.load(dy + cols + c)) + both * u;
        } else {
          d = both * u;
        }
      }
    }
    if (row.dweight != nullptr) {
      lanes.store(row.dweight + c, lanes.load(row.dweight + c) + d * at.hat);
    }
    if (row.dbias != nullptr) lanes.store(row.dbias + c, lanes.load(row.dbias + c) + d);
    if (row.weight != nullptr) d *= lanes.load(row.weight + c);
    lanes.store(row.slope + c, d);
    total += lanes.keep(d);
    along += lanes.keep(d * at.hat);
  });
  const float scale = 1.0f / static_cast<float>(cols);
  const float mean_slope = row.layer ? sum(total) * scale : 0.0f;
  const float mean_along = sum(along) * scale;
  over_row(cols, [&](auto lanes, std::int64_t c) {
    Floats hat = lanes.load(x + c);
    if (row.layer) hat -= row.mean;
    hat *= row.rstd;
    Floats d = (lanes.load(row.slope + c) - mean_slope - hat * mean_along) * row.rstd;
    // What reaches x past the norm.
    if constexpr (kOutput == kSwish) {
      d += lanes.load(dy + c) * lanes.load(row.factors + c);
    } else if constexpr (kOutput == kConcatInput) {
      d += dropped(row, lanes, cols + c, lanes.load(dy + cols + c));
    }
    if (residual != nullptr) d += lanes.load(residual + c);
    lanes.store(dx + c, d);
  });
}

template <class T>
constexpr NormLoops<T> kLoops = {{forward<kPlain, T>, forward<kGated, T>, forward<kConcat, T>,
                                  forward<kConcatInput, T>, forward<kSwish, T>},
                                 {backward<kPlain, T>, backward<kGated, T>, backward<kConcat, T>,
                                  backward<kConcatInput, T>, backward<kSwish, T>}};

constexpr NormTable kTable = {kLoops<float>, kLoops<bf16>};

}  // namespace

const NormTable& norm_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
