#include "turbogr/ops/dense/row_arithmetic.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/row_arithmetic_kernels.h"

namespace turbogr::ops {

template <class T>
void add_rows(const Context& ctx, Rows<const T> x, Rows<T> y) {
  const char* op = "add_rows";
  check_rows(op, "x", x, x.rows, x.cols);
  check_rows(op, "y", y, x.rows, x.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::add_rows<T>(device, x, y); });
}

template <class T>
void multiply_rows(const Context& ctx, Rows<const T> a, Rows<const T> b, Rows<T> y) {
  const char* op = "multiply_rows";
  check_rows(op, "a", a, a.rows, a.cols);
  check_rows(op, "b", b, a.rows, a.cols);
  check_rows(op, "y", y, a.rows, a.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::multiply_rows<T>(device, a, b, y); });
}

template <class T>
void multiply_rows_backward(const Context& ctx, Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                            Rows<T> da, Rows<T> db) {
  const char* op = "multiply_rows_backward";
  check_rows(op, "a", a, a.rows, a.cols);
  check_rows(op, "b", b, a.rows, a.cols);
  check_rows(op, "dy", dy, a.rows, a.cols);
  check_rows(op, "da", da, a.rows, a.cols);
  check_rows(op, "db", db, a.rows, a.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx,
            [&](auto device) { kernels::multiply_rows_backward<T>(device, a, b, dy, da, db); });
}

#define TGR_INSTANTIATE(T)                                                               \
  template void add_rows<T>(const Context&, Rows<const T>, Rows<T>);                     \
  template void multiply_rows<T>(const Context&, Rows<const T>, Rows<const T>, Rows<T>); \
  template void multiply_rows_backward<T>(const Context&, Rows<const T>, Rows<const T>,  \
                                          Rows<const T>, Rows<T>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
