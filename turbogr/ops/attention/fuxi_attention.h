// FuXi attention over jagged sequences: three maps over the same values, computed in one pass. For
// a key j that query i sees,
//   position  A_ij = position[S - 1 + j - i]
//   time      A_ij = time[time_bucket(query_times[i], key_times[j])]
//   latent    A_ij = SiLU(alpha q_i . k_j) / norm_length
// and each head's output is [position | time | latent] side by side.
#pragma once

#include <cstddef>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/attention/attention_plan.h"
#include "turbogr/ops/attention/attention_types.h"

namespace turbogr::ops {

struct FuxiAttentionOptions {
  int heads = 1;
  double alpha = 1;        // scale of q . k
  double norm_length = 1;  // one constant for the run, above 0
  AttentionMask mask;
  const AttentionPlan* plan = nullptr;  // of this batch; null: made anew, in the workspace
  // The same bits from every backward call on a GPU, at a price; a CPU gives them anyway.
  bool deterministic = false;
};

// q, k [N, H * dq], v [N, H * dv], out [N, H * 3 * dv]; 1 <= dq, dv <= 256. The tables are the maps
// themselves: no SiLU, no division. The map of an empty table is zero, and so is its third of out.
template <class T>
void fuxi_attention(const Context& ctx, Jagged<const T> q, Rows<const T> k, Rows<const T> v,
                    const AttentionBias<T>& maps, const FuxiAttentionOptions& options, Rows<T> out);

// Overwrites dq, dk, dv; adds to dmaps.
template <class T>
void fuxi_attention_backward(const Context& ctx, Jagged<const T> q, Rows<const T> k,
                             Rows<const T> v, const AttentionBias<T>& maps,
                             const FuxiAttentionOptions& options, Rows<const T> dout, Rows<T> dq,
                             Rows<T> dk, Rows<T> dv, const AttentionBiasGradient<T>& dmaps);

template <class T>
std::size_t fuxi_attention_workspace_bytes(const AttentionShape& shape);
template <class T>
std::size_t fuxi_attention_backward_workspace_bytes(const AttentionShape& shape);

}  // namespace turbogr::ops
