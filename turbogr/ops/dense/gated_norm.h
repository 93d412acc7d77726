// The gate after attention in one pass: y = dropout(gate * norm(x)), or with `concat` y =
// dropout([gate | norm(x) | gate * norm(x)]), three times as wide; with `concat_input` too, x
// itself stands in the middle. With `silu_gate` the gate is given before its SiLU, which both
// passes make on their way. The backward pass makes norm and mask again from x, gate and the saved
// statistics; nothing else is kept.
//
//   gated_norm<float>(ctx, x, gate, {.dropout = {.rate = 0.2, .seed = 1, .site = 7}}, y, saved);
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/dense/dropout.h"
#include "turbogr/ops/dense/norm.h"

namespace turbogr::ops {

template <class T>
struct GatedNormOptions {
  NormOptions<T> norm;
  bool concat = false;
  bool silu_gate = false;  // silu(gate) gates, and dgate goes through it
  DropoutOptions dropout;
  bool concat_input = false;  // with concat: x in the middle, not norm(x)
};

// x, gate [N, D]; y [N, D], or [N, 3 D] with concat; y8 as in norm.
template <class T>
void gated_norm(const Context& ctx, Rows<const T> x, Rows<const T> gate,
                const GatedNormOptions<T>& options, Rows<T> y,
                const NormStatistics<Accum<T>>& statistics, const Fp8Rows<T>& y8 = {});

template <class T>
struct GatedNormGradients {
  Rows<T> dx;                 // [N, D], overwritten
  Rows<T> dgate;              // [N, D], overwritten
  View<Accum<T>, 1> dweight;  // [D], added to; empty: not computed
  View<Accum<T>, 1> dbias;    // [D], added to; empty: not computed
};

// Neither dx nor dgate may overlap an input.
template <class T>
void gated_norm_backward(const Context& ctx, Rows<const T> x, Rows<const T> gate, Rows<const T> dy,
                         const GatedNormOptions<T>& options,
                         const NormStatistics<const Accum<T>>& statistics,
                         const GatedNormGradients<T>& gradients);

// What gated_norm and gated_norm_backward need of the workspace for rows of D columns.
template <class T>
std::size_t gated_norm_workspace_bytes(const Context& ctx, std::int64_t cols);

}  // namespace turbogr::ops
