// SwiGLU: y = silu(a) * b. a and b are usually two slices of one projection's output.
#pragma once

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// a, b, y [N, F].
template <class T>
void swiglu(const Context& ctx, Rows<const T> a, Rows<const T> b, Rows<T> y);

// Overwrites da and db; they may be a and b, or dy one of them.
template <class T>
void swiglu_backward(const Context& ctx, Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                     Rows<T> da, Rows<T> db);

}  // namespace turbogr::ops
