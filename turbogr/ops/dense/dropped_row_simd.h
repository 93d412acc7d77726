// A walk over a row that dropout thins. For x_simd.cc files.
#pragma once

#include "turbogr/ops/dense/dropout_mask_simd.h"
#include "turbogr/ops/dense/dropout_simd.h"
#include "turbogr/ops/dense/row_walk_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

// Calls body(lanes, column, factor), the factors being those of the row's dropout, or 1 without.
template <class Body>
inline void over_dropped_row(const DropoutRowArgs& args, Body&& body) {
  if (args.threshold == 0) {
    over_row(args.cols, [&](auto lanes, std::int64_t c) { body(lanes, c, splat(1.0f)); });
    return;
  }
  constexpr std::int64_t kChunk = 8 * kLanes;  // columns that one round of Philox covers
  float factors[kChunk];
  for (std::int64_t first = 0; first < args.cols; first += kChunk) {
    const std::int64_t count = args.cols - first < kChunk ? args.cols - first : kChunk;
    dropout_factors(args.seed, args.row_key, args.site, first, args.threshold, args.scale, factors);
    over_row(count, [&](auto lanes, std::int64_t c) { body(lanes, first + c, load(factors + c)); });
  }
}

}  // namespace
}  // namespace turbogr::TGR_SIMD
