// What a device fills in for fp8.h and fp8_linear.h.
#pragma once

#include "turbogr/ops/dense/fp8.h"
#include "turbogr/ops/dense/fp8_linear.h"

namespace turbogr::ops::kernels {

template <class T>
void quantise(Cpu cpu, Rows<const T> x, const Fp8Rows<T>& out);
void quantise(Cuda cuda, Rows<const bf16> x, const Fp8Rows<bf16>& out);

int compute_capability();  // of the GPU, its first number

void fp8_linear(Cuda cuda, const Fp8Rows<bf16>& x, const Fp8Rows<bf16>& weight,
                const LinearOptions<bf16>& options, Rows<bf16> y);
void fp8_linear_backward(Cuda cuda, const Fp8Rows<bf16>& x, const Fp8Rows<bf16>& weight,
                         const Fp8Rows<bf16>& dz, const LinearGradients<bf16>& gradients);

}  // namespace turbogr::ops::kernels
