#include <algorithm>
#include <cmath>

#include "turbogr/ops/dense/elementwise_kernels.h"
#include "turbogr/ops/dense/elementwise_simd.h"

namespace turbogr::ops::kernels {
namespace {

template <class Body>
void for_rows(Cpu cpu, std::int64_t rows, Body&& body) {
  parallel_ranges(cpu.pool, rows, 32, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) body(r);
  });
}

// A row whose length was below eps has exactly this inverse.
template <class A>
A shortest_inverse(const L2NormalizeOptions& options) {
  return A(1) / static_cast<A>(options.eps);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu_slope(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }

}  // namespace

template <class T>
void swiglu(Cpu cpu, Rows<const T> a, Rows<const T> b, Rows<T> y) {
  const auto row = elementwise_table(cpu.simd).of<T>().swiglu;
  for_rows(cpu, a.rows, [&](std::int64_t r) { row(a.cols, a.row(r), b.row(r), y.row(r)); });
}

template <>
void swiglu<double>(Cpu cpu, Rows<const double> a, Rows<const double> b, Rows<double> y) {
  for_rows(cpu, a.rows, [&](std::int64_t r) {
    for (std::int64_t c = 0; c < a.cols; ++c) y(r, c) = a(r, c) * sigmoid(a(r, c)) * b(r, c);
  });
}

template <class T>
void swiglu_backward(Cpu cpu, Rows<const T> a, Rows<const T> b, Rows<const T> dy, Rows<T> da,
                     Rows<T> db) {
  const auto row = elementwise_table(cpu.simd).of<T>().swiglu_backward;
  for_rows(cpu, a.rows, [&](std::int64_t r) {
    row(a.cols, a.row(r), b.row(r), dy.row(r), da.row(r), db.row(r));
  });
}

template <>
void swiglu_backward<double>(Cpu cpu, Rows<const double> a, Rows<const double> b,
                             Rows<const double> dy, Rows<double> da, Rows<double> db) {
  for_rows(cpu, a.rows, [&](std::int64_t r) {
    for (std::int64_t c = 0; c < a.cols; ++c) {
      const double x = a(r, c), up = b(r, c), d = dy(r, c);
      da(r, c) = d * up * silu_slope(x);
      db(r, c) = d * x * sigmoid(x);
    }
  });
}

template <class T>
void silu(Cpu cpu, Rows<const T> x, Rows<T> y) {
  const auto row = elementwise_table(cpu.simd).of<T>().silu;
  for_rows(cpu, x.rows, [&](std::int64_t r) { row(x.cols, x.row(r), y.row(r)); });
}

template <>
void silu<double>(Cpu cpu, Rows<const double> x, Rows<double> y) {
  for_rows(cpu, x.rows, [&](std::int64_t r) {
    for (std::int64_t c = 0; c < x.cols; ++c) y(r, c) = x(r, c) * sigmoid(x(r, c));
  });
}

template <class T>
void silu_backward(Cpu cpu, Rows<const T> x, Rows<const T> dy, Rows<T> dx) {
  const auto row = elementwise_table(cpu.simd).of<T>().silu_backward;
  for_rows(cpu, x.rows, [&](std::int64_t r) { row(x.cols, x.row(r), dy.row(r), dx.row(r)); });
}

template <>
void silu_backward<double>(Cpu cpu, Rows<const double> x, Rows<const double> dy, Rows<double> dx) {
  for_rows(cpu, x.rows, [&](std::int64_t r) {
    for (std::int64_t c = 0; c < x.cols; ++c) dx(r, c) = dy(r, c) * silu_slope(x(r, c));
  });
}

template <class T>
void l2_normalize(Cpu cpu, Rows<const T> x, const L2NormalizeOptions& options, Rows<T> y,
                  View<Accum<T>, 1> inverse) {
  const auto row = elementwise_table(cpu.simd).of<T>().l2_normalize;
  const auto eps = static_cast<float>(options.eps);
  for_rows(cpu, x.rows, [&](std::int64_t r) { inverse(r) = row(x.cols, eps, x.row(r), y.row(r)); });
}

template <>
void l2_normalize<double>(Cpu cpu, Rows<const double> x, const L2NormalizeOptions& options,
                          Rows<double> y, View<double, 1> inverse) {
  for_rows(cpu, x.rows, [&](std::int64_t r) {
    double squares = 0;
    for (std::int64_t c = 0; c < x.cols; ++c) squares += x(r, c) * x(r, c);
    inverse(r) = 1 / std::max(std::sqrt(squares), options.eps);
    for (std::int64_t c = 0; c < x.cols; ++c) y(r, c) = x(r, c) * inverse(r);
  });
}

template <class T>
void l2_normalize_backward(Cpu cpu, Rows<const T> x, Rows<const T> dy,
                           View<const Accum<T>, 1> inverse, const L2NormalizeOptions& options,
                           Rows<T> dx) {
  const auto row = elementwise_table(cpu.simd).of<T>().l2_normalize_backward;
  const float shortest = shortest_inverse<float>(options);
  for_rows(cpu, x.rows, [&](std::int64_t r) {
    row(x.cols, inverse(r), inverse(r) == shortest, x.row(r), dy.row(r), dx.row(r));
  });
}

template <>
void l2_normalize_backward<double>(Cpu cpu, Rows<const double> x, Rows<const double> dy,
                                   View<const double, 1> inverse, const L2NormalizeOptions& options,
                                   Rows<double> dx) {
  for_rows(cpu, x.rows, [&](std::int64_t r) {
    double along = 0;
    if (inverse(r) != shortest_inverse<double>(options)) {
      for (std::int64_t c = 0; c < x.cols; ++c) along += x(r, c) * dy(r, c);
      along *= inverse(r) * inverse(r);
    }
    for (std::int64_t c = 0; c < x.cols; ++c) {
      dx(r, c) = (dy(r, c) - x(r, c) * along) * inverse(r);
    }
  });
}

#define TGR_INSTANTIATE(T)                                                                    \
  template void swiglu<T>(Cpu, Rows<const T>, Rows<const T>, Rows<T>);                        \
  template void swiglu_backward<T>(Cpu, Rows<const T>, Rows<const T>, Rows<const T>, Rows<T>, \
                                   Rows<T>);                                                  \
  template void silu<T>(Cpu, Rows<const T>, Rows<T>);                                         \
  template void silu_backward<T>(Cpu, Rows<const T>, Rows<const T>, Rows<T>);                 \
  template void l2_normalize<T>(Cpu, Rows<const T>, const L2NormalizeOptions&, Rows<T>,       \
                                View<Accum<T>, 1>);                                           \
  template void l2_normalize_backward<T>(Cpu, Rows<const T>, Rows<const T>,                   \
                                         View<const Accum<T>, 1>, const L2NormalizeOptions&,  \
                                         Rows<T>);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
