// What a device fills in for row_arithmetic.h.
#pragma once

#include "turbogr/ops/dense/row_arithmetic.h"

namespace turbogr::ops::kernels {

template <class T>
void add_rows(Cpu cpu, Rows<const T> x, Rows<T> y);
template <class T>
void multiply_rows(Cpu cpu, Rows<const T> a, Rows<const T> b, Rows<T> y);
template <class T>
void multiply_rows_backward(Cpu cpu, Rows<const T> a, Rows<const T> b, Rows<const T> dy, Rows<T> da,
                            Rows<T> db);

template <class T>
void add_rows(Cuda cuda, Rows<const T> x, Rows<T> y);
template <class T>
void multiply_rows(Cuda cuda, Rows<const T> a, Rows<const T> b, Rows<T> y);
template <class T>
void multiply_rows_backward(Cuda cuda, Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                            Rows<T> da, Rows<T> db);

}  // namespace turbogr::ops::kernels
