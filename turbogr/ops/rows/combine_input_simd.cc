#include "turbogr/ops/rows/combine_input_simd.h"

#include "turbogr/ops/dense/dropped_row_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

template <class T>
void forward(const DropoutRowArgs& args, float scale, const T* e, const T* p, const T* extra,
             T* x) {
  over_dropped_row(args, [&](auto lanes, std::int64_t c, Floats factor) {
    Floats v = lanes.load(e + c) * scale + lanes.load(p + c);
    if (extra != nullptr) v += lanes.load(extra + c);
    lanes.store(x + c, v * factor);
  });
}

template <class T>
void backward(const DropoutRowArgs& args, float scale, const T* dx, T* de, float* dp, T* dextra) {
  over_dropped_row(args, [&](auto lanes, std::int64_t c, Floats factor) {
    const Floats d = lanes.load(dx + c) * factor;
    lanes.store(de + c, d * scale);
    if (dp != nullptr) lanes.store(dp + c, lanes.load(dp + c) + d);
    if (dextra != nullptr) lanes.store(dextra + c, d);
  });
}

constexpr CombineInputTable kTable = {{forward<float>, backward<float>},
                                      {forward<bf16>, backward<bf16>}};

}  // namespace

const CombineInputTable& combine_input_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
