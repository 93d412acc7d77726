// What this machine can do at best, measured in the same run as what is held against it: a large
// oneDNN product per number format, and a large copy.
#pragma once

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"

namespace turbogr::bench {

// GFLOP/s of a 2048 x 2048 x 2048 product with all of the context's threads.
double gemm_roof_gflops(const Context& ctx, DType dtype);
// GB/s of a copy far larger than the caches; bytes read plus bytes written.
double copy_roof_gbytes(const Context& ctx);

}  // namespace turbogr::bench
