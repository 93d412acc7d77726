#include "bench/padded_simd.h"

#include "turbogr/core/simd.h"

namespace turbogr::TGR_SIMD {
namespace {

// Calls body(column, loader, storer) for whole vectors, then once for the tail.
template <class Body>
inline void over_columns(std::int64_t count, Body&& body) {
  std::int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    body(
        c, [](const auto* p) { return load(p); }, [](auto* p, Floats v) { store(p, v); });
  }
  const std::int64_t left = count - c;
  if (left > 0) {
    body(
        c, [left](const auto* p) { return load_first(p, left); },
        [left](auto* p, Floats v) { store_first(p, v, left); });
  }
}

template <class T>
void silu_row(const T* scores, const float* bias, float scale, std::int64_t count, T* a) {
  over_columns(count, [&](std::int64_t c, auto read, auto write) {
    const Floats x = bias == nullptr ? read(scores + c) : read(scores + c) + read(bias + c);
    write(a + c, silu(x) * scale);
  });
}

template <class T>
void silu_backward_row(const T* scores, const float* bias, float scale, std::int64_t count,
                       T* gradient, float* sum) {
  over_columns(count, [&](std::int64_t c, auto read, auto write) {
    const Floats x = bias == nullptr ? read(scores + c) : read(scores + c) + read(bias + c);
    const Floats d = read(gradient + c) * silu_slope(x, sigmoid(x)) * scale;
    write(gradient + c, d);
    if (sum != nullptr) write(sum + c, read(sum + c) + d);
  });
}

constexpr PaddedTable kTable = {silu_row<float>, silu_row<bf16>, silu_backward_row<float>,
                                silu_backward_row<bf16>};

}  // namespace

const PaddedTable& padded_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
