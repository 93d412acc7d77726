// Rows of length one: y = x / max(|x|, eps). The length's inverse is saved for the backward pass.
#pragma once

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

struct L2NormalizeOptions {
  double eps = 1e-6;
};

// x, y [N, D], inverse [N]; y may be x.
template <class T>
void l2_normalize(const Context& ctx, Rows<const T> x, const L2NormalizeOptions& options, Rows<T> y,
                  View<Accum<T>, 1> inverse);

// dx = inverse * (dy - y (y . dy)) with y = x * inverse; a row shorter than eps was only scaled, so
// there dx = inverse * dy. Overwrites dx; dx may be dy.
template <class T>
void l2_normalize_backward(const Context& ctx, Rows<const T> x, Rows<const T> dy,
                           View<const Accum<T>, 1> inverse, const L2NormalizeOptions& options,
                           Rows<T> dx);

}  // namespace turbogr::ops
