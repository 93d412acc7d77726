// Both attentions for any GPU from sm_80 on, any head width from 1 to 256, any stride and every
// mask, in f64, f32 and bf16. Same inputs, same bits: rows of dq, then columns of dk and dv, then
// the tables, each sum in a fixed order.
#pragma once

#include <cstddef>

#include "turbogr/core/context.h"
#include "turbogr/ops/attention/attention_kernels.h"

namespace turbogr::ops {

template <class T>
void portable_attention(Cuda cuda, AttentionKind kind, const AttentionProblem<T>& problem,
                        Rows<T> out);
template <class T>
void portable_attention_backward(Cuda cuda, AttentionKind kind, const AttentionProblem<T>& problem,
                                 Rows<const T> dout, const AttentionGradients<T>& gradients);

template <class T>
std::size_t portable_attention_workspace_bytes(const AttentionShape& shape, bool backward);

}  // namespace turbogr::ops
