#include "turbogr/ops/linear_simd.h"

#include "turbogr/core/simd.h"

namespace turbogr::TGR_SIMD {
namespace {

// One vector's worth of a row, whole or its first `count` elements.
template <bool kWhole, class T>
inline Floats read(const T* p, std::int64_t count) {
  if constexpr (kWhole) return load(p);
  return load_first(p, count);
}
template <bool kWhole, class T>
inline void write(T* p, Floats v, std::int64_t count) {
  if constexpr (kWhole) {
    store(p, v);
  } else {
    store_first(p, v, count);
  }
}

template <bool kWhole, class T>
inline void finish(const float* tile, const float* bias, bool with_silu, const T* residual, T* y,
                   T* z, std::int64_t c, std::int64_t count) {
  Floats v = read<kWhole>(tile + c, count);
  if (bias != nullptr) v += read<kWhole>(bias + c, count);
  if (z != nullptr) write<kWhole>(z + c, v, count);
  if (with_silu) v = silu(v);
  if (residual != nullptr) v += read<kWhole>(residual + c, count);
  write<kWhole>(y + c, v, count);
}

template <class T>
void epilogue(std::int64_t rows, std::int64_t cols, const float* tile, const float* bias,
              bool with_silu, typename LinearLoops<T>::ConstMatrix residual,
              typename LinearLoops<T>::Matrix y, typename LinearLoops<T>::Matrix z) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* in = tile + r * cols;
    const T* add = residual.data == nullptr ? nullptr : residual.data + r * residual.stride;
    T* out = y.data + r * y.stride;
    T* kept = z.data == nullptr ? nullptr : z.data + r * z.stride;
    std::int64_t c = 0;
    for (; c + kLanes <= cols; c += kLanes) {
      finish<true>(in, bias, with_silu, add, out, kept, c, kLanes);
    }
    if (c < cols) finish<false>(in, bias, with_silu, add, out, kept, c, cols - c);
  }
}

template <bool kWhole, class T, class Out>
inline void differentiate(const T* dy, const T* z, Out* dz, float* db, std::int64_t c,
                          std::int64_t count) {
  Floats v = read<kWhole>(dy + c, count);
  if (z != nullptr) {
    const Floats at = read<kWhole>(z + c, count);
    v *= silu_slope(at, sigmoid(at));
  }
  if (dz != nullptr) write<kWhole>(dz + c, v, count);
  if (db != nullptr) write<kWhole>(db + c, read<kWhole>(db + c, count) + v, count);
}

template <class T, class Out>
void gradient(std::int64_t rows, std::int64_t cols, typename LinearLoops<T>::ConstMatrix dy,
              typename LinearLoops<T>::ConstMatrix z, Out* dz, float* db) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* in = dy.data + r * dy.stride;
    const T* at = z.data == nullptr ? nullptr : z.data + r * z.stride;
    Out* out = dz == nullptr ? nullptr : dz + r * cols;
    std::int64_t c = 0;
    for (; c + kLanes <= cols; c += kLanes) differentiate<true>(in, at, out, db, c, kLanes);
    if (c < cols) differentiate<false>(in, at, out, db, c, cols - c);
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
