// SwiGLU: y = silu(a) * b. a and b are usually two slices of one projection's output.
#pragma once

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/dense/fp8.h"

namespace turbogr::ops {

// a, b, y [N, F]. With y8 the result is quantised, bit for bit as quantise makes it of y, and y is
// scratch.
template <class T>
void swiglu(const Context& ctx, Rows<const T> a, Rows<const T> b, Rows<T> y,
            const Fp8Rows<T>& y8 = {});

// Overwrites da and db; they may be a and b, or dy one of them. With both8 [N, 2 F] they are the
// halves of one matrix, which is quantised, and scratch.
template <class T>
void swiglu_backward(const Context& ctx, Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                     Rows<T> da, Rows<T> db, const Fp8Rows<T>& both8 = {});

}  // namespace turbogr::ops
