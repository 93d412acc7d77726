#include "turbogr/ops/dense/dropout_simd.h"

#include "turbogr/ops/dense/dropout_mask_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

template <class T>
void dropout_row(const DropoutRowArgs& args, const T* x, T* y) {
  constexpr std::int64_t kChunk = 8 * kLanes;  // columns that one round of Philox covers
  float factors[kChunk];
  for (std::int64_t first = 0; first < args.cols; first += kChunk) {
    const std::int64_t count = args.cols - first < kChunk ? args.cols - first : kChunk;
    dropout_factors(args.seed, args.row_key, args.site, first, args.threshold, args.scale, factors);
    std::int64_t c = 0;
    for (; c + kLanes <= count; c += kLanes) {
      store(y + first + c, load(x + first + c) * load(factors + c));
    }
    if (c < count) {
      const Floats product = load_first(x + first + c, count - c) * load(factors + c);
      store_first(y + first + c, product, count - c);
    }
  }
}

constexpr DropoutTable kTable = {dropout_row<float>, dropout_row<bf16>};

}  // namespace

const DropoutTable& dropout_table() { return kTable; }

}  // namespace turbogr::TGR_SIMD
