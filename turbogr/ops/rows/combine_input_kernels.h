// What a device fills in for combine_input.h.
#pragma once

#include "turbogr/ops/rows/combine_input.h"

namespace turbogr::ops::kernels {

template <class T>
void combine_input(Cpu cpu, Jagged<const T> e, View<const T, 2> p,
                   const CombineInputOptions<T>& options, Rows<T> x);
template <class T>
void combine_input(Cuda cuda, Jagged<const T> e, View<const T, 2> p,
                   const CombineInputOptions<T>& options, Rows<T> x);
template <class T>
void combine_input_backward(Cpu cpu, Jagged<const T> dx, const CombineInputOptions<T>& options,
                            const CombineInputGradients<T>& gradients);
template <class T>
void combine_input_backward(Cuda cuda, Jagged<const T> dx, const CombineInputOptions<T>& options,
                            const CombineInputGradients<T>& gradients);

// The specification, in f64, has sources of its own.
template <>
void combine_input<double>(Cpu cpu, Jagged<const double> e, View<const double, 2> p,
                           const CombineInputOptions<double>& options, Rows<double> x);
template <>
void combine_input_backward<double>(Cpu cpu, Jagged<const double> dx,
                                    const CombineInputOptions<double>& options,
                                    const CombineInputGradients<double>& gradients);

}  // namespace turbogr::ops::kernels
