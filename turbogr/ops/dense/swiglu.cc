#include "turbogr/ops/dense/swiglu.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/elementwise_kernels.h"

namespace turbogr::ops {

template <class T>
void swiglu(const Context& ctx, Rows<const T> a, Rows<const T> b, Rows<T> y, const Fp8Rows<T>& y8) {
  check_rows("swiglu", "a", a, a.rows, a.cols);
  check_rows("swiglu", "b", b, a.rows, a.cols);
  check_rows("swiglu", "y", y, a.rows, a.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  bool done = false;
  on_device(ctx, [&](auto device) {
    done = y8.scale != nullptr && kernels::swiglu_to_fp8<T>(device, a, b, y8);
    if (!done) kernels::swiglu<T>(device, a, b, y);
  });
  if (y8.scale != nullptr && !done) quantise<T>(ctx, y, y8);
}

template <class T>
void swiglu_backward(const Context& ctx, Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                     Rows<T> da, Rows<T> db, const Fp8Rows<T>& both8) {
  check_rows("swiglu_backward", "a", a, a.rows, a.cols);
  check_rows("swiglu_backward", "b", b, a.rows, a.cols);
  check_rows("swiglu_backward", "dy", dy, a.rows, a.cols);
  check_rows("swiglu_backward", "da", da, a.rows, a.cols);
  check_rows("swiglu_backward", "db", db, a.rows, a.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  TGR_CHECK(both8.scale == nullptr || (db.data == da.data + a.cols && db.stride == da.stride),
            "swiglu_backward: da and db are not the halves of one matrix, which both8 is of");
  bool done = false;
  on_device(ctx, [&](auto device) {
    done = both8.scale != nullptr && kernels::swiglu_backward_to_fp8<T>(device, a, b, dy, both8);
    if (!done) kernels::swiglu_backward<T>(device, a, b, dy, da, db);
  });
  if (both8.scale != nullptr && !done) {
    quantise<T>(ctx, Rows<const T>(da.data, da.rows, 2 * da.cols, da.stride), both8);
  }
}

#define TGR_INSTANTIATE(T)                                                                      \
  template void swiglu<T>(const Context&, Rows<const T>, Rows<const T>, Rows<T>,                \
                          const Fp8Rows<T>&);                                                   \
  template void swiglu_backward<T>(const Context&, Rows<const T>, Rows<const T>, Rows<const T>, \
                                   Rows<T>, Rows<T>, const Fp8Rows<T>&);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
