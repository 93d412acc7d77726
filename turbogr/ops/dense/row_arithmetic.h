// Sums and products of rows, element by element.
#pragma once

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// y += x; x, y [N, D].
template <class T>
void add_rows(const Context& ctx, Rows<const T> x, Rows<T> y);

// y = a * b; all [N, D]. y may be a or b where no backward pass follows.
template <class T>
void multiply_rows(const Context& ctx, Rows<const T> a, Rows<const T> b, Rows<T> y);

// da = dy * b, db = dy * a. Overwrites; neither may overlap a or b, one of them may be dy.
template <class T>
void multiply_rows_backward(const Context& ctx, Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                            Rows<T> da, Rows<T> db);

}  // namespace turbogr::ops
