#include "turbogr/ops/dense/l2_normalize.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/elementwise_kernels.h"

namespace turbogr::ops {
namespace {

void check_eps(const char* op, const L2NormalizeOptions& options) {
  TGR_CHECK(options.eps > 0, op, ": eps is ", options.eps, "; it must be above 0");
}

}  // namespace

template <class T>
void l2_normalize(const Context& ctx, Rows<const T> x, const L2NormalizeOptions& options, Rows<T> y,
                  View<Accum<T>, 1> inverse) {
  check_eps("l2_normalize", options);
  check_rows("l2_normalize", "x", x, x.rows, x.cols);
  check_rows("l2_normalize", "y", y, x.rows, x.cols);
  check_vector("l2_normalize", "inverse", inverse, x.rows);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::l2_normalize<T>(device, x, options, y, inverse); });
}

template <class T>
void l2_normalize_backward(const Context& ctx, Rows<const T> x, Rows<const T> dy,
                           View<const Accum<T>, 1> inverse, const L2NormalizeOptions& options,
                           Rows<T> dx) {
  check_eps("l2_normalize_backward", options);
  check_rows("l2_normalize_backward", "x", x, x.rows, x.cols);
  check_rows("l2_normalize_backward", "dy", dy, x.rows, x.cols);
  check_rows("l2_normalize_backward", "dx", dx, x.rows, x.cols);
  check_vector("l2_normalize_backward", "inverse", inverse, x.rows);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) {
    kernels::l2_normalize_backward<T>(device, x, dy, inverse, options, dx);
  });
}

#define TGR_INSTANTIATE(T)                                                                         \
  template void l2_normalize<T>(const Context&, Rows<const T>, const L2NormalizeOptions&, Rows<T>, \
                                View<Accum<T>, 1>);                                                \
  template void l2_normalize_backward<T>(const Context&, Rows<const T>, Rows<const T>,             \
                                         View<const Accum<T>, 1>, const L2NormalizeOptions&,       \
                                         Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
