// An activation that carries its own norm: y = x * sigmoid(norm(x)), norm being LayerNorm with
// weight and bias. The backward pass makes the norm again from x and the saved statistics.
//
//   swish_norm<float>(ctx, x, {.eps = 1e-5, .weight = w, .bias = b}, y, {mean, rstd});
//   swish_norm_backward<float>(ctx, x, dy, options, {mean, rstd}, {.dx = dx, .dweight = dw, ...});
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/dense/norm.h"

namespace turbogr::ops {

// x, y [N, D]; y may be x where no backward pass follows.
template <class T>
void swish_norm(const Context& ctx, Rows<const T> x, const NormOptions<T>& options, Rows<T> y,
                const NormStatistics<Accum<T>>& statistics);

template <class T>
struct SwishNormGradients {
  Rows<T> dx;                 // [N, D], overwritten
  View<Accum<T>, 1> dweight;  // [D], added to; empty: not computed
  View<Accum<T>, 1> dbias;    // [D], added to; empty: not computed
};

// dx may be dy, not x.
template <class T>
void swish_norm_backward(const Context& ctx, Rows<const T> x, Rows<const T> dy,
                         const NormOptions<T>& options,
                         const NormStatistics<const Accum<T>>& statistics,
                         const SwishNormGradients<T>& gradients);

// What both need of the workspace for rows of D columns.
template <class T>
std::size_t swish_norm_workspace_bytes(const Context& ctx, std::int64_t cols);

}  // namespace turbogr::ops
