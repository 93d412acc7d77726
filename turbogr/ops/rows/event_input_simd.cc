#include "turbogr/ops/rows/event_input_simd.h"

#include "turbogr/ops/dense/dropped_row_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

template <class T>
void forward(const DropoutRowArgs& args, float scale, const T* token, const float* position,
             const float* time, T* x) {
  over_dropped_row(args, [&](auto lanes, std::int64_t c, Floats factor) {
    const Floats sum = scale * lanes.load(token + c) + lanes.load(position + c);
    lanes.store(x + c, (sum + lanes.load(time + c)) * factor);
  });
}

template <class T>
void backward(const DropoutRowArgs& args, float scale, const T* dx, T* dtoken, float* d) {
  over_dropped_row(args, [&](auto lanes, std::int64_t c, Floats factor) {
    const Floats given = lanes.load(dx + c) * factor;
    lanes.store(dtoken + c, scale * given);
    lanes.store(d + c, given);
  });
}

void add(std::int64_t count, const float* x, float* y) {
  over_row(count, [&](auto lanes, std::int64_t c) {
    lanes.store(y + c, lanes.load(y + c) + lanes.load(x + c));
  });
}

constexpr EventInputTable kTable = {
    {forward<float>, backward<float>}, {forward<bf16>, backward<bf16>}, add};

}  // namespace

const EventInputTable& event_input_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
