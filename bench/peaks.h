// What this machine can do at best, measured in the same run as what is held against it: a large
// oneDNN product per number format, and a large copy.
#pragma once

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"

namespace turbogr::bench {

// Small: enough to see that the program works, too small to be a peak.
enum class PeakSize : std::uint8_t { kFull, kSmall };

// GFLOP/s of a 2048 x 2048 x 2048 product (small: 256) with all of the context's threads.
double gemm_peak_gflops(const Context& ctx, DType dtype, PeakSize size = PeakSize::kFull);
// GB/s of a copy far larger than the caches (small: 8 MB); bytes read plus bytes written.
double copy_peak_gbytes(const Context& ctx, PeakSize size = PeakSize::kFull);

}  // namespace turbogr::bench
