#include "turbogr/ops/dense/linear_simd.h"

#include "turbogr/ops/dense/row_walk_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

template <class T>
void epilogue(std::int64_t rows, std::int64_t cols, const float* tile, const float* bias,
              bool with_silu, typename LinearLoops<T>::ConstMatrix residual,
              typename LinearLoops<T>::Matrix y, typename LinearLoops<T>::Matrix z) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* in = tile + r * cols;
    const T* add = residual.data == nullptr ? nullptr : residual.data + r * residual.stride;
    T* out = y.data + r * y.stride;
    T* kept = z.data == nullptr ? nullptr : z.data + r * z.stride;
    over_row(cols, [&](auto lanes, std::int64_t c) {
      Floats v = lanes.load(in + c);
      if (bias != nullptr) v += lanes.load(bias + c);
      if (kept != nullptr) lanes.store(kept + c, v);
      if (with_silu) v = silu(v);
      if (add != nullptr) v += lanes.load(add + c);
      lanes.store(out + c, v);
    });
  }
}

template <class T, class Out>
void gradient(std::int64_t rows, std::int64_t cols, typename LinearLoops<T>::ConstMatrix dy,
              typename LinearLoops<T>::ConstMatrix z, Out* dz, float* db) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* in = dy.data + r * dy.stride;
    const T* at = z.data == nullptr ? nullptr : z.data + r * z.stride;
    Out* out = dz == nullptr ? nullptr : dz + r * cols;
    over_row(cols, [&](auto lanes, std::int64_t c) {
      Floats v = lanes.load(in + c);
      if (at != nullptr) {
        const Floats x = lanes.load(at + c);
        v *= silu_slope(x, sigmoid(x));
      }
      if (out != nullptr) lanes.store(out + c, v);
      if (db != nullptr) lanes.store(db + c, lanes.load(db + c) + v);
    });
  }
}

template <class T, class Out>
void gather(std::int64_t rows, std::int64_t cols, typename LinearLoops<T>::ConstMatrix x,
            Out* out) {
  gradient<T, Out>(rows, cols, x, {nullptr, 0}, out, nullptr);
}

constexpr LinearTable kTable = {{epilogue<float>, gradient<float, float>, gradient<float, float>,
                                 gather<float, float>, gather<float, float>},
                                {epilogue<bf16>, gradient<bf16, bf16>, gradient<bf16, float>,
                                 gather<bf16, bf16>, gather<bf16, float>}};

}  // namespace

const LinearTable& linear_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
