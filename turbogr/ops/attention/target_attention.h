// HSTU attention of sequences' targets alone, as the last layer of a ranking model wants it: only
// targets leave it. A_ij = SiLU(alpha q_i . k_j) / norm_length for every key j that comes before
// the sequence's targets, and for target i's own; out = A V.
//
//   target_attention<float>(ctx, {offsets, target_offsets}, q, k, v, {.heads = 4, ...}, out);
//
// B sequences, N tokens, M targets, which are the last tokens of their sequences.
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/host_device.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

struct TargetSequences {
  Offsets tokens;   // [B + 1], from 0 to N
  Offsets targets;  // [B + 1], from 0 to M
};

struct TargetAttentionOptions {
  int heads = 1;
  double alpha = 1;        // scale of q . k
  double norm_length = 1;  // above 0
};

// q [M, H dq], k [N, H dq], v [N, H dv], out [M, H dv]; heads' widths are 1 to 256.
template <class T>
void target_attention(const Context& ctx, const TargetSequences& sequences, Rows<const T> q,
                      Rows<const T> k, Rows<const T> v, const TargetAttentionOptions& options,
                      Rows<T> out);

// Overwrites dq, dk and dv, which are apart from the inputs.
template <class T>
void target_attention_backward(const Context& ctx, const TargetSequences& sequences,
                               Rows<const T> q, Rows<const T> k, Rows<const T> v,
                               const TargetAttentionOptions& options, Rows<const T> dout,
                               Rows<T> dq, Rows<T> dk, Rows<T> dv);

// Where one sequence's tokens and targets lie.
struct TargetSequence {
  std::int64_t token = 0, target = 0;    // the first ones
  std::int64_t before = 0, targets = 0;  // tokens before the targets; targets
};
TGR_HD inline TargetSequence target_sequence(const TargetSequences& s, std::int64_t b) {
  const std::int64_t targets = s.targets(b + 1) - s.targets(b);
  return {.token = s.tokens(b),
          .target = s.targets(b),
          .before = s.tokens(b + 1) - s.tokens(b) - targets,
          .targets = targets};
}

}  // namespace turbogr::ops
