#include "turbogr/ops/attention/target_attention_simd.h"

#include "turbogr/ops/dense/row_walk_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

constexpr int kKeys = 16;  // whose SiLU is found at once

template <class Matrix>
inline auto row(const Matrix& matrix, std::int64_t r) {
  return matrix.data + r * matrix.stride;
}

template <class T>
inline float dot(const T* a, const T* b, std::int64_t width) {
  Floats total = {};
  over_row(width,
           [&](auto lanes, std::int64_t c) { total += lanes.load(a + c) * lanes.load(b + c); });
  return sum(total);
}

template <class T>
inline void add_weighted(float factor, const T* row, std::int64_t width, float* sums) {
  over_row(width, [&](auto lanes, std::int64_t c) {
    lanes.store(sums + c, lanes.load(sums + c) + factor * lanes.load(row + c));
  });
}

template <class T>
inline void store_scaled(const float* sums, float scale, std::int64_t width, T* row) {
  over_row(width,
           [&](auto lanes, std::int64_t c) { lanes.store(row + c, lanes.load(sums + c) * scale); });
}

inline void clear(float* sums, std::int64_t width) {
  for (std::int64_t c = 0; c < width; ++c) sums[c] = 0.0f;
}

// What target i makes of the `count` <= kKeys tokens from `token` on, but for the scale.
template <class T>
inline void find_weights(const TargetHead<T>& h, std::int64_t i, std::int64_t token, int count,
                         float* weight) {
  for (int j = 0; j < kKeys; ++j) {
    weight[j] = j < count ? dot(row(h.q, i), row(h.k, token + j), h.qk_width) : 0.0f;
  }
  for (int j = 0; j < kKeys; j += kLanes) store(weight + j, silu(h.alpha * load(weight + j)));
}

// The same with the gradients of q . k, likewise.
template <class T>
inline void find_slopes(const TargetHead<T>& h, std::int64_t i, std::int64_t token, int count,
                        float* weight, float* slope) {
  for (int j = 0; j < kKeys; ++j) {
    weight[j] = j < count ? dot(row(h.q, i), row(h.k, token + j), h.qk_width) : 0.0f;
    slope[j] = j < count ? dot(row(h.dout, i), row(h.v, token + j), h.v_width) : 0.0f;
  }
  for (int j = 0; j < kKeys; j += kLanes) {
    const Floats x = h.alpha * load(weight + j);
    const Floats s = sigmoid(x);
    store(weight + j, x * s);
    store(slope + j, h.alpha * load(slope + j) * silu_slope(x, s));
  }
}

// Calls body(first token, count) for what target i sees.
template <class T, class Body>
inline void over_keys(const TargetHead<T>& h, std::int64_t i, Body&& body) {
  for (std::int64_t token = 0; token < h.before; token += kKeys) {
    body(token, static_cast<int>(h.before - token < kKeys ? h.before - token : kKeys));
  }
  body(h.before + i, 1);
}

template <class T>
void forward(const TargetHead<T>& h) {
  float weight[kKeys], sums[kMostTargetWidth];
  for (std::int64_t i = 0; i < h.targets; ++i) {
    clear(sums, h.v_width);
    over_keys(h, i, [&](std::int64_t token, int count) {
      find_weights(h, i, token, count, weight);
      for (int j = 0; j < count; ++j) add_weighted(weight[j], row(h.v, token + j), h.v_width, sums);
    });
    store_scaled(sums, h.scale, h.v_width, row(h.out, i));
  }
}

// dk and dv of the tokens from `token` on, seen by the targets from `first` up to `last`.
template <class T>
inline void backward_keys(const TargetHead<T>& h, std::int64_t token, int count, std::int64_t first,
                          std::int64_t last) {
  float weight[kKeys], slope[kKeys];
  float key_sums[kKeys][kMostTargetWidth], value_sums[kKeys][kMostTargetWidth];
  for (int j = 0; j < count; ++j) {
    clear(key_sums[j], h.qk_width);
    clear(value_sums[j], h.v_width);
  }
  for (std::int64_t i = first; i < last; ++i) {
    find_slopes(h, i, token, count, weight, slope);
    for (int j = 0; j < count; ++j) {
      add_weighted(slope[j], row(h.q, i), h.qk_width, key_sums[j]);
      add_weighted(weight[j], row(h.dout, i), h.v_width, value_sums[j]);
    }
  }
  for (int j = 0; j < count; ++j) {
    store_scaled(key_sums[j], h.scale, h.qk_width, row(h.dk, token + j));
    store_scaled(value_sums[j], h.scale, h.v_width, row(h.dv, token + j));
  }
}

template <class T>
void backward(const TargetHead<T>& h) {
  float weight[kKeys], slope[kKeys], sums[kMostTargetWidth];
  for (std::int64_t i = 0; i < h.targets; ++i) {
    clear(sums, h.qk_width);
    over_keys(h, i, [&](std::int64_t token, int count) {
      find_slopes(h, i, token, count, weight, slope);
      for (int j = 0; j < count; ++j) add_weighted(slope[j], row(h.k, token + j), h.qk_width, sums);
    });
    store_scaled(sums, h.scale, h.qk_width, row(h.dq, i));
  }
  for (std::int64_t token = 0; token < h.before; token += kKeys) {
    backward_keys(h, token, static_cast<int>(h.before - token < kKeys ? h.before - token : kKeys),
                  0, h.targets);
  }
  for (std::int64_t i = 0; i < h.targets; ++i) backward_keys(h, h.before + i, 1, i, i + 1);
}

constexpr TargetAttentionTable kTable = {forward<float>, forward<bf16>, backward<float>,
                                         backward<bf16>};

}  // namespace

const TargetAttentionTable& target_attention_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
