// Which attention calls the Hopper kernels take, and how they are told of them. The others go to
// the portable kernels.
#pragma once

#include <cstddef>

#include "turbogr/core/context.h"
#include "turbogr/ops/attention/attention_kernels.h"

namespace turbogr::ops {

// By number format, widths and the GPU; a plan is made where this holds.
template <class T>
bool hopper_serves(AttentionKind kind, const AttentionShape& shape);

// Scratch with the plan at its beginning; what backward needs serves forward too.
std::size_t hopper_bytes(AttentionKind kind, const AttentionShape& shape, bool backward);
// What HSTU's forward call can leave for its backward call.
std::size_t hopper_kept_bytes(AttentionKind kind, const AttentionShape& shape);
void make_hopper_plan(Cuda cuda, const AttentionBatch& batch, const AttentionPlan& plan);

// False where this call is not for them: strides, alignment, masks, an empty plan. `problem.plan`
// is used if it is there.
template <class T>
bool hopper_attention(Cuda cuda, AttentionKind kind, const AttentionProblem<T>& problem,
                      Rows<T> out);
template <class T>
bool hopper_attention_backward(Cuda cuda, AttentionKind kind, const AttentionProblem<T>& problem,
                               Rows<const T> dout, const AttentionGradients<T>& gradients);

}  // namespace turbogr::ops
