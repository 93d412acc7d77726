// What a device fills in for clock_features.h.
#pragma once

#include "turbogr/ops/rows/clock_features.h"

namespace turbogr::ops::kernels {

template <class T>
void clock_features(Cpu cpu, View<const std::int64_t, 1> times, Rows<T> features);

}  // namespace turbogr::ops::kernels
