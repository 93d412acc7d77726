// What a device fills in for swiglu.h, silu.h and l2_normalize.h.
#pragma once

#include "turbogr/ops/dense/l2_normalize.h"
#include "turbogr/ops/dense/silu.h"
#include "turbogr/ops/dense/swiglu.h"

namespace turbogr::ops::kernels {

template <class T>
void swiglu(Cpu cpu, Rows<const T> a, Rows<const T> b, Rows<T> y);
template <class T>
void swiglu(Cuda cuda, Rows<const T> a, Rows<const T> b, Rows<T> y);
template <class T>
void swiglu_backward(Cpu cpu, Rows<const T> a, Rows<const T> b, Rows<const T> dy, Rows<T> da,
                     Rows<T> db);
template <class T>
void swiglu_backward(Cuda cuda, Rows<const T> a, Rows<const T> b, Rows<const T> dy, Rows<T> da,
                     Rows<T> db);

// Straight to eight bits, where there is a kernel for it; else nothing is done.
template <class T>
bool swiglu_to_fp8(Cpu, Rows<const T>, Rows<const T>, const Fp8Rows<T>&) {
  return false;
}
template <class T>
bool swiglu_to_fp8(Cuda cuda, Rows<const T> a, Rows<const T> b, const Fp8Rows<T>& y8);
template <class T>
bool swiglu_backward_to_fp8(Cpu, Rows<const T>, Rows<const T>, Rows<const T>, const Fp8Rows<T>&) {
  return false;
}
template <class T>
bool swiglu_backward_to_fp8(Cuda cuda, Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                            const Fp8Rows<T>& both8);

template <class T>
void silu(Cpu cpu, Rows<const T> x, Rows<T> y);
template <class T>
void silu(Cuda cuda, Rows<const T> x, Rows<T> y);
template <class T>
void silu_backward(Cpu cpu, Rows<const T> x, Rows<const T> dy, Rows<T> dx);
template <class T>
void silu_backward(Cuda cuda, Rows<const T> x, Rows<const T> dy, Rows<T> dx);

template <class T>
void l2_normalize(Cpu cpu, Rows<const T> x, const L2NormalizeOptions& options, Rows<T> y,
                  View<Accum<T>, 1> inverse);
template <class T>
void l2_normalize(Cuda cuda, Rows<const T> x, const L2NormalizeOptions& options, Rows<T> y,
                  View<Accum<T>, 1> inverse);
template <class T>
void l2_normalize_backward(Cpu cpu, Rows<const T> x, Rows<const T> dy,
                           View<const Accum<T>, 1> inverse, const L2NormalizeOptions& options,
                           Rows<T> dx);
template <class T>
void l2_normalize_backward(Cuda cuda, Rows<const T> x, Rows<const T> dy,
                           View<const Accum<T>, 1> inverse, const L2NormalizeOptions& options,
                           Rows<T> dx);

// The specification, in f64, has sources of its own.
template <>
void swiglu<double>(Cpu cpu, Rows<const double> a, Rows<const double> b, Rows<double> y);
template <>
void swiglu_backward<double>(Cpu cpu, Rows<const double> a, Rows<const double> b,
                             Rows<const double> dy, Rows<double> da, Rows<double> db);
template <>
void silu<double>(Cpu cpu, Rows<const double> x, Rows<double> y);
template <>
void silu_backward<double>(Cpu cpu, Rows<const double> x, Rows<const double> dy, Rows<double> dx);
template <>
void l2_normalize<double>(Cpu cpu, Rows<const double> x, const L2NormalizeOptions& options,
                          Rows<double> y, View<double, 1> inverse);
template <>
void l2_normalize_backward<double>(Cpu cpu, Rows<const double> x, Rows<const double> dy,
                                   View<const double, 1> inverse, const L2NormalizeOptions& options,
                                   Rows<double> dx);

}  // namespace turbogr::ops::kernels
