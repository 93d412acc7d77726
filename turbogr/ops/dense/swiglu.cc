#include "turbogr/ops/dense/swiglu.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/elementwise_kernels.h"

namespace turbogr::ops {

template <class T>
void swiglu(const Context& ctx, Rows<const T> a, Rows<const T> b, Rows<T> y) {
  check_rows("swiglu", "a", a, a.rows, a.cols);
  check_rows("swiglu", "b", b, a.rows, a.cols);
  check_rows("swiglu", "y", y, a.rows, a.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::swiglu<T>(device, a, b, y); });
}

template <class T>
void swiglu_backward(const Context& ctx, Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                     Rows<T> da, Rows<T> db) {
  check_rows("swiglu_backward", "a", a, a.rows, a.cols);
  check_rows("swiglu_backward", "b", b, a.rows, a.cols);
  check_rows("swiglu_backward", "dy", dy, a.rows, a.cols);
  check_rows("swiglu_backward", "da", da, a.rows, a.cols);
  check_rows("swiglu_backward", "db", db, a.rows, a.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::swiglu_backward<T>(device, a, b, dy, da, db); });
}

#define TGR_INSTANTIATE(T)                                                                      \
  template void swiglu<T>(const Context&, Rows<const T>, Rows<const T>, Rows<T>);               \
  template void swiglu_backward<T>(const Context&, Rows<const T>, Rows<const T>, Rows<const T>, \
                                   Rows<T>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
