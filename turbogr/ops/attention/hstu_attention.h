// HSTU attention over jagged sequences: A_ij = SiLU(alpha q_i . k_j + b_ij) / norm_length where
// query i sees key j, else 0; out = A V. The bias b is computed inside from positions and times;
// nothing of size length x length is made, and the backward pass needs q, k and v only.
//
//   hstu_attention<float>(ctx, {q, offsets}, k, v, {.position = w_pos}, {.heads = 8, .norm_length =
//   n},
//                         out);
#pragma once

#include <cstddef>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/attention/attention_plan.h"
#include "turbogr/ops/attention/attention_types.h"

namespace turbogr::ops {

struct HstuAttentionOptions {
  int heads = 1;
  double alpha = 1;        // scale of q . k
  double norm_length = 1;  // one constant for the run, above 0
  AttentionMask mask;
  // No sequence is longer; 0: not known. A GPU's fast kernels want it for a bias or a mask where
  // there is neither a plan nor a position table, which know it.
  std::int64_t max_length = 0;
  const AttentionPlan* plan = nullptr;  // of this batch; null: made anew, in the workspace
  // Where a forward call may leave for the backward call of the same inputs what that would have to
  // make again: attention_kept_bytes; with less, or none, it does. On a GPU `out` must then be
  // aligned to 16 bytes, rows too.
  View<std::byte, 1> kept;
  // `kept` holds what an earlier forward call left there, of the same batch, mask and tables: one
  // of another layer, where there are no tables.
  bool kept_ready = false;
  // The same bits from every backward call on a GPU, at a price; a CPU gives them anyway.
  bool deterministic = false;
};

// q, k [N, H * dq], v, out [N, H * dv]; head h is columns h * d up to (h + 1) * d, 1 <= d <= 256.
template <class T>
void hstu_attention(const Context& ctx, Jagged<const T> q, Rows<const T> k, Rows<const T> v,
                    const AttentionBias<T>& bias, const HstuAttentionOptions& options, Rows<T> out);

// Overwrites dq, dk, dv (slices of one buffer, if wanted, but apart from the inputs); adds to
// dbias. With `before`, dq, dk and dv are the gradients of these rows, of which q, k and v are
// SiLU.
template <class T>
void hstu_attention_backward(const Context& ctx, Jagged<const T> q, Rows<const T> k,
                             Rows<const T> v, const AttentionBias<T>& bias,
                             const HstuAttentionOptions& options, Rows<const T> dout, Rows<T> dq,
                             Rows<T> dk, Rows<T> dv, const AttentionBiasGradient<T>& dbias,
                             const BeforeSilu<T>& before = {});

template <class T>
std::size_t hstu_attention_workspace_bytes(const AttentionShape& shape);
template <class T>
std::size_t hstu_attention_backward_workspace_bytes(const AttentionShape& shape);

}  // namespace turbogr::ops
