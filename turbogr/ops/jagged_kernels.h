// What a device fills in for jagged.h.
#pragma once

#include "turbogr/ops/jagged.h"

namespace turbogr::ops::kernels {

// Sequence b of a and of b, end to end, from or into sequence b of the whole.
template <class T>
void jagged_concat(Cpu cpu, Jagged<const T> a, Jagged<const T> b, Jagged<T> whole);
template <class T>
void jagged_concat(Cuda cuda, Jagged<const T> a, Jagged<const T> b, Jagged<T> whole);
template <class T>
void jagged_split(Cpu cpu, Jagged<const T> whole, Jagged<T> a, Jagged<T> b);
template <class T>
void jagged_split(Cuda cuda, Jagged<const T> whole, Jagged<T> a, Jagged<T> b);
template <class T>
void last_k_rows(Cpu cpu, Jagged<const T> x, Jagged<T> out);
template <class T>
void last_k_rows(Cuda cuda, Jagged<const T> x, Jagged<T> out);
template <class T>
void last_k_rows_backward(Cpu cpu, Jagged<const T> dout, Jagged<T> dx);
template <class T>
void last_k_rows_backward(Cuda cuda, Jagged<const T> dout, Jagged<T> dx);
template <class T>
void to_padded(Cpu cpu, Jagged<const T> x, View<T, 3> out);
template <class T>
void to_padded(Cuda cuda, Jagged<const T> x, View<T, 3> out);
template <class T>
void from_padded(Cpu cpu, View<const T, 3> x, Jagged<T> out);
template <class T>
void from_padded(Cuda cuda, View<const T, 3> x, Jagged<T> out);

}  // namespace turbogr::ops::kernels
