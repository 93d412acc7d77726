// The part of an HSTU call that its short sequences are.
#pragma once

#include "turbogr/ops/attention/hopper/attention_layout.cuh"

namespace turbogr::cuda {

// `width`: of the kernels' tiles.
void short_forward(const AttentionParams& p, const AttentionLayout& layout, int width);
void short_backward(const AttentionParams& p, const AttentionLayout& layout, int width);

}  // namespace turbogr::cuda
