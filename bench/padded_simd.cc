#include "bench/padded_simd.h"

#include "turbogr/ops/dense/row_walk_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

template <class T>
void silu_row(const T* scores, const float* bias, float scale, std::int64_t count, T* a) {
  over_row(count, [&](auto lanes, std::int64_t c) {
    const Floats x =
        bias == nullptr ? lanes.load(scores + c) : lanes.load(scores + c) + lanes.load(bias + c);
    lanes.store(a + c, silu(x) * scale);
  });
}

template <class T>
void silu_backward_row(const T* scores, const float* bias, float scale, std::int64_t count,
                       T* gradient, float* sum) {
  over_row(count, [&](auto lanes, std::int64_t c) {
    const Floats x =
        bias == nullptr ? lanes.load(scores + c) : lanes.load(scores + c) + lanes.load(bias + c);
    const Floats d = lanes.load(gradient + c) * silu_slope(x, sigmoid(x)) * scale;
    lanes.store(gradient + c, d);
    if (sum != nullptr) lanes.store(sum + c, lanes.load(sum + c) + d);
  });
}

constexpr PaddedTable kTable = {silu_row<float>, silu_row<bf16>, silu_backward_row<float>,
                                silu_backward_row<bf16>};

}  // namespace

const PaddedTable& padded_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
