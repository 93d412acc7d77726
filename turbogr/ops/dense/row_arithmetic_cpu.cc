#include "turbogr/core/dtype.h"
#include "turbogr/ops/dense/row_arithmetic_kernels.h"

namespace turbogr::ops::kernels {
namespace {

// Calls body(row, column) for every element, in pieces of rows.
template <class Body>
void over_elements(Cpu cpu, std::int64_t rows, std::int64_t cols, Body&& body) {
  parallel_ranges(cpu.pool, rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) body(r, c);
    }
  });
}

}  // namespace

template <class T>
void add_rows(Cpu cpu, Rows<const T> x, Rows<T> y) {
  using A = Accum<T>;
  over_elements(cpu, x.rows, x.cols, [&](std::int64_t r, std::int64_t c) {
    y(r, c) = convert<T>(convert<A>(y(r, c)) + convert<A>(x(r, c)));
  });
}

template <class T>
void multiply_rows(Cpu cpu, Rows<const T> a, Rows<const T> b, Rows<T> y) {
  using A = Accum<T>;
  over_elements(cpu, a.rows, a.cols, [&](std::int64_t r, std::int64_t c) {
    y(r, c) = convert<T>(convert<A>(a(r, c)) * convert<A>(b(r, c)));
  });
}

template <class T>
void multiply_rows_backward(Cpu cpu, Rows<const T> a, Rows<const T> b, Rows<const T> dy, Rows<T> da,
                            Rows<T> db) {
  using A = Accum<T>;
  over_elements(cpu, a.rows, a.cols, [&](std::int64_t r, std::int64_t c) {
    const A d = convert<A>(dy(r, c));
    da(r, c) = convert<T>(d * convert<A>(b(r, c)));
    db(r, c) = convert<T>(d * convert<A>(a(r, c)));
  });
}

#define TGR_INSTANTIATE(T)                                                                  \
  template void add_rows<T>(Cpu, Rows<const T>, Rows<T>);                                   \
  template void multiply_rows<T>(Cpu, Rows<const T>, Rows<const T>, Rows<T>);               \
  template void multiply_rows_backward<T>(Cpu, Rows<const T>, Rows<const T>, Rows<const T>, \
                                          Rows<T>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
