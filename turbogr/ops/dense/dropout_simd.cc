#include "turbogr/ops/dense/dropout_simd.h"

#include "turbogr/ops/dense/dropped_row_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

template <class T>
void dropout_row(const DropoutRowArgs& args, const T* x, T* y) {
  over_dropped_row(args, [&](auto lanes, std::int64_t c, Floats factor) {
    lanes.store(y + c, lanes.load(x + c) * factor);
  });
}

constexpr DropoutTable kTable = {dropout_row<float>, dropout_row<bf16>};

}  // namespace

const DropoutTable& dropout_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
