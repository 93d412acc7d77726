#include "turbogr/ops/dense/silu.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/elementwise_kernels.h"

namespace turbogr::ops {

template <class T>
void silu(const Context& ctx, Rows<const T> x, Rows<T> y) {
  check_rows("silu", "x", x, x.rows, x.cols);
  check_rows("silu", "y", y, x.rows, x.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::silu<T>(device, x, y); });
}

template <class T>
void silu_backward(const Context& ctx, Rows<const T> x, Rows<const T> dy, Rows<T> dx) {
  check_rows("silu_backward", "x", x, x.rows, x.cols);
  check_rows("silu_backward", "dy", dy, x.rows, x.cols);
  check_rows("silu_backward", "dx", dx, x.rows, x.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::silu_backward<T>(device, x, dy, dx); });
}

#define TGR_INSTANTIATE(T)                                       \
  template void silu<T>(const Context&, Rows<const T>, Rows<T>); \
  template void silu_backward<T>(const Context&, Rows<const T>, Rows<const T>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
