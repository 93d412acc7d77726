// What MFU is measured against when the config names no peak.
#pragma once

#include "turbogr/core/context.h"

namespace turbogr::train {

// TFLOP/s: a GPU's published dense bf16 peak where it is known, else the best of a few large
// products in T on the context's device.
template <class T>
double peak_tflops(const Context& ctx);

}  // namespace turbogr::train
