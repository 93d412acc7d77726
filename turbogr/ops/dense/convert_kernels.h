// What a device fills in for convert.h and action_rows.h.
#pragma once

#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/rows/action_rows.h"

namespace turbogr::ops::kernels {

template <class To, class From>
void convert_values(Cpu cpu, View<const From, 1> from, View<To, 1> to);
template <class To, class From>
void convert_values(Cuda cuda, View<const From, 1> from, View<To, 1> to);

template <class T>
void fill(Cpu cpu, T value, View<T, 1> to);
template <class T>
void fill(Cuda cuda, T value, View<T, 1> to);

inline constexpr std::int64_t kSumPiece = 1 << 13;  // values that are summed into one part
template <class T>
void sum_values(Cpu cpu, View<const T, 1> values, double* sum);
template <class T>
void sum_values(Cuda cuda, View<const T, 1> values, double* sum);

template <class T>
void inverse_norms(Cpu cpu, Rows<const T> x, double eps, View<Accum<T>, 1> inverse);
template <class T>
void inverse_norms(Cuda cuda, Rows<const T> x, double eps, View<Accum<T>, 1> inverse);

template <class T>
void action_rows(Cpu cpu, View<const Accum<T>, 2> table, View<const std::uint32_t, 1> masks,
                 Rows<T> rows);
template <class T>
void action_rows(Cuda cuda, View<const Accum<T>, 2> table, View<const std::uint32_t, 1> masks,
                 Rows<T> rows);
template <class T>
void action_rows_backward(Cpu cpu, Rows<const T> drows, View<const std::uint32_t, 1> masks,
                          View<Accum<T>, 2> dtable);
template <class T>
void action_rows_backward(Cuda cuda, Rows<const T> drows, View<const std::uint32_t, 1> masks,
                          View<Accum<T>, 2> dtable);
template <class T>
std::size_t action_rows_workspace_bytes(Cpu, std::int64_t, std::int64_t, std::int64_t) {
  return 0;
}
template <class T>
std::size_t action_rows_workspace_bytes(Cuda cuda, std::int64_t tokens, std::int64_t actions,
                                        std::int64_t width);

}  // namespace turbogr::ops::kernels
