// SiLU by itself, y = x * sigmoid(x), for slices of a projection that the linear layer's own
// activation does not cover.
#pragma once

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// x, y [N, D]; y may be x where no backward pass follows.
template <class T>
void silu(const Context& ctx, Rows<const T> x, Rows<T> y);

// dx = dy * silu'(x). Overwrites dx; dx may be dy or x.
template <class T>
void silu_backward(const Context& ctx, Rows<const T> x, Rows<const T> dy, Rows<T> dx);

}  // namespace turbogr::ops
