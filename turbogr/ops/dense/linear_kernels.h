// What a device fills in for linear.h.
#pragma once

#include "turbogr/ops/dense/linear.h"

namespace turbogr::ops::kernels {

template <class T>
void pack_weight(Cpu cpu, typename PackedWeight<T>::State& state, View<const T, 2> w);

template <class T>
void linear(Cpu cpu, Rows<const T> x, const typename PackedWeight<T>::State& weight,
            const LinearOptions<T>& options, Rows<T> y, Rows<T> z);
template <class T>
std::size_t linear_workspace_bytes(const typename PackedWeight<T>::State& weight, int threads);

template <class T>
void linear_backward(Cpu cpu, Rows<const T> x, const typename PackedWeight<T>::State& weight,
                     Rows<const T> dy, const LinearBackwardOptions<T>& options,
                     const LinearGradients<T>& gradients);
template <class T>
std::size_t linear_backward_workspace_bytes(const typename PackedWeight<T>::State& weight,
                                            std::int64_t rows, int threads);

// The same on a GPU, where the weight is kept as it is and products are cuBLASLt's.
template <class T>
void pack_weight(Cuda cuda, typename PackedWeight<T>::State& state, View<const T, 2> w);
template <class T>
void linear(Cuda cuda, Rows<const T> x, const typename PackedWeight<T>::State& weight,
            const LinearOptions<T>& options, Rows<T> y, Rows<T> z);
template <class T>
void linear_backward(Cuda cuda, Rows<const T> x, const typename PackedWeight<T>::State& weight,
                     Rows<const T> dy, const LinearBackwardOptions<T>& options,
                     const LinearGradients<T>& gradients);
template <class T>
std::size_t linear_workspace_bytes_cuda(std::int64_t outputs);
template <class T>
std::size_t linear_backward_workspace_bytes_cuda(std::int64_t outputs, std::int64_t rows);

// The specification, in f64, has sources of its own.
template <>
void pack_weight<double>(Cpu, PackedWeight<double>::State& state, View<const double, 2> w);
template <>
void linear<double>(Cpu cpu, Rows<const double> x, const PackedWeight<double>::State& weight,
                    const LinearOptions<double>& options, Rows<double> y, Rows<double> z);
template <>
std::size_t linear_workspace_bytes<double>(const PackedWeight<double>::State&, int);
template <>
void linear_backward<double>(Cpu cpu, Rows<const double> x,
                             const PackedWeight<double>::State& weight, Rows<const double> dy,
                             const LinearBackwardOptions<double>& options,
                             const LinearGradients<double>& gradients);
template <>
std::size_t linear_backward_workspace_bytes<double>(const PackedWeight<double>::State&,
                                                    std::int64_t, int);

}  // namespace turbogr::ops::kernels
