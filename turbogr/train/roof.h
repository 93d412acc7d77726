// What MFU is measured against when the config names no peak: the best of a few large products on
// this machine.
#pragma once

#include "turbogr/core/context.h"

namespace turbogr::train {

// TFLOP/s of a 2048 x 1024 x 1024 product in T with all of the context's threads.
template <class T>
double measure_roof_tflops(const Context& ctx);

}  // namespace turbogr::train
