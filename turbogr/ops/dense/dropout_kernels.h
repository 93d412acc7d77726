// What a device fills in for dropout.h.
#pragma once

#include "turbogr/ops/dense/dropout.h"

namespace turbogr::ops::kernels {

template <class T>
void dropout(Cpu cpu, Rows<const T> x, const DropoutOptions& options, Rows<T> y);
template <class T>
void dropout(Cuda cuda, Rows<const T> x, const DropoutOptions& options, Rows<T> y);

// Vectorised.
template <>
void dropout<float>(Cpu cpu, Rows<const float> x, const DropoutOptions& options, Rows<float> y);
template <>
void dropout<bf16>(Cpu cpu, Rows<const bf16> x, const DropoutOptions& options, Rows<bf16> y);

}  // namespace turbogr::ops::kernels
