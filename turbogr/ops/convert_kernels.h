// What a device fills in for convert.h.
#pragma once

#include "turbogr/ops/convert.h"

namespace turbogr::ops::kernels {

template <class To, class From>
void convert_values(Cpu cpu, View<const From, 1> from, View<To, 1> to);
template <class T>
void fill(Cpu cpu, T value, View<T, 1> to);
template <class T>
void sum_values(Cpu cpu, View<const T, 1> values, double* sum);
template <class T>
void inverse_norms(Cpu cpu, Rows<const T> x, double eps, View<Accum<T>, 1> inverse);

template <class To, class From>
void convert_values(Cuda cuda, View<const From, 1> from, View<To, 1> to);
template <class T>
void fill(Cuda cuda, T value, View<T, 1> to);
template <class T>
void sum_values(Cuda cuda, View<const T, 1> values, double* sum);
template <class T>
void inverse_norms(Cuda cuda, Rows<const T> x, double eps, View<Accum<T>, 1> inverse);

inline constexpr std::int64_t kSumPiece = 1 << 14;  // values summed by one thread or block

}  // namespace turbogr::ops::kernels
