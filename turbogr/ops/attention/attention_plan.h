// The order of work of one batch on a GPU: it depends on lengths, times, heads and widths, so all
// layers of a step share one. Empty on a CPU, and wherever the kernel that will run needs none;
// attention makes its own where it is given none.
//
//   Tensor memory(DType::kU8, {attention_plan_bytes<bf16>(kind, shape)}, ctx.device());
//   const AttentionPlan plan = make_attention_plan<bf16>(ctx, kind, batch, shape, memory);
//   hstu_attention<bf16>(ctx, ..., {.heads = 8, .norm_length = n, .plan = &plan}, out);
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/ops/attention/attention_types.h"

namespace turbogr::ops {

// Owns nothing: memory is the caller's and must stay until the last call that uses the plan is
// done. Calls that may overlap need a plan each, as scratch lies in it too.
struct AttentionPlan {
  AttentionKind kind = AttentionKind::kHstu;
  AttentionShape shape;  // what it was made for
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

// What a plan is made of, on the context's device.
struct AttentionBatch {
  Offsets offsets;
  View<const std::int64_t, 1> key_times;    // [N], or empty where no time table is used
  View<const std::int64_t, 1> query_times;  // [N], likewise
};

// For shapes up to this one.
template <class T>
std::size_t attention_plan_bytes(AttentionKind kind, const AttentionShape& shape);

// Of what attention may keep for its backward pass (HstuAttentionOptions::kept); 0: nothing.
template <class T>
std::size_t attention_kept_bytes(AttentionKind kind, const AttentionShape& shape);

// `shape` is the batch's own. Where `memory` does not hold attention_plan_bytes of it, the plan is
// empty: calls that are given an empty plan take the kernels that need none.
template <class T>
AttentionPlan make_attention_plan(const Context& ctx, AttentionKind kind,
                                  const AttentionBatch& batch, const AttentionShape& shape,
                                  Tensor& memory);

}  // namespace turbogr::ops
