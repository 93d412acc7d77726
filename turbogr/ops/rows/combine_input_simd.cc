#include "turbogr/ops/rows/combine_input_simd.h"

#include "turbogr/ops/dense/dropout_mask_simd.h"
#include "turbogr/ops/dense/row_walk_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

// Walks a row with the factors of its dropout: body(lanes, column, factor).
template <class Body>
inline void over_dropped_row(const DropoutRowArgs& args, Body&& body) {
  constexpr std::int64_t kChunk = 8 * kLanes;  // columns that one round of Philox covers
  float factors[kChunk];
  for (int i = 0; i < kChunk; ++i) factors[i] = 1.0f;
  for (std::int64_t first = 0; first < args.cols; first += kChunk) {
    const std::int64_t count = args.cols - first < kChunk ? args.cols - first : kChunk;
    if (args.threshold != 0) {
      dropout_factors(args.seed, args.row_key, args.site, first, args.threshold, args.scale,
                      factors);
    }
    over_row(count, [&](auto lanes, std::int64_t c) { body(lanes, first + c, load(factors + c)); });
  }
}

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
