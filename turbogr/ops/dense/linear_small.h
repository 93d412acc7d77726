// Linear layers of small f32 weights on the CPU: a call of oneDNN costs more than such a product.
// For linear.cc and linear_cpu.cc.
#pragma once

#include "turbogr/ops/dense/linear_packed.h"

namespace turbogr::ops::kernels {

using SmallWeight = PackedWeight<float>::State;
void pack_small_weight(SmallWeight& state, View<const float, 2> w);

void small_linear(Cpu cpu, Rows<const float> x, const SmallWeight& weight,
                  const LinearOptions<float>& options, Rows<float> y, Rows<float> z);

void small_linear_backward(Cpu cpu, Rows<const float> x, const SmallWeight& weight,
                           Rows<const float> dy, const LinearBackwardOptions<float>& options,
                           const LinearGradients<float>& gradients);
std::size_t small_linear_backward_workspace_bytes(const SmallWeight& weight, std::int64_t rows,
                                                  int threads);

}  // namespace turbogr::ops::kernels
