#include <algorithm>
#include <cmath>

#include "turbogr/ops/dense/convert_kernels.h"

namespace turbogr::ops::kernels {

template <class To, class From>
void convert_values(Cpu cpu, View<const From, 1> from, View<To, 1> to) {
  parallel_ranges(cpu.pool, from.shape[0], 1 << 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) to(i) = convert<To>(from(i));
  });
}

template <class T>
void fill(Cpu cpu, T value, View<T, 1> to) {
  parallel_ranges(cpu.pool, to.shape[0], 1 << 16, [&](std::int64_t begin, std::int64_t end, int) {
    std::fill(to.data + begin, to.data + end, value);
  });
}

template <class T>
void sum_values(Cpu cpu, View<const T, 1> values, double* sum) {
  WorkspaceScope scratch(cpu.workspace);
  const auto parts = scratch.take<double>((values.shape[0] + kSumPiece - 1) / kSumPiece);
  parallel_for(cpu.pool, parts.shape[0], [&](std::int64_t piece, int) {
    const std::int64_t end = std::min((piece + 1) * kSumPiece, values.shape[0]);
    double part = 0;
    for (std::int64_t i = piece * kSumPiece; i < end; ++i) part += convert<Accum<T>>(values(i));
    parts(piece) = part;
  });
  double total = 0;
  for (std::int64_t piece = 0; piece < parts.shape[0]; ++piece) total += parts(piece);
  *sum = total;
}

template <class T>
void inverse_norms(Cpu cpu, Rows<const T> x, double eps, View<Accum<T>, 1> inverse) {
  parallel_ranges(cpu.pool, x.rows, 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      double squares = 0;
      for (std::int64_t c = 0; c < x.cols; ++c) {
        const double value = convert<Accum<T>>(x(r, c));
        squares += value * value;
      }
      inverse(r) = static_cast<Accum<T>>(1 / std::max(std::sqrt(squares), eps));
    }
  });
}

template <class T>
void action_rows(Cpu cpu, View<const Accum<T>, 2> table, View<const std::uint32_t, 1> masks,
                 Rows<T> rows) {
  using A = Accum<T>;
  parallel_ranges(cpu.pool, rows.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = 0; c < rows.cols; ++c) {
        A sum = 0;
        for (std::int64_t bit = 0; bit < table.shape[0]; ++bit) {
          if ((masks(r) >> bit & 1u) != 0) sum += table(bit, c);
        }
        rows(r, c) = convert<T>(sum);
      }
    }
  });
}

template <class T>
void action_rows_backward(Cpu cpu, Rows<const T> drows, View<const std::uint32_t, 1> masks,
                          View<Accum<T>, 2> dtable) {
  using A = Accum<T>;
  parallel_for(cpu.pool, dtable.shape[0], [&](std::int64_t bit, int) {
    for (std::int64_t r = 0; r < drows.rows; ++r) {
      if ((masks(r) >> bit & 1u) == 0) continue;
      for (std::int64_t c = 0; c < drows.cols; ++c) dtable(bit, c) += convert<A>(drows(r, c));
    }
  });
}

#define TGR_INSTANTIATE(T)                                                                 \
  template void fill<T>(Cpu, T, View<T, 1>);                                               \
  template void sum_values<T>(Cpu, View<const T, 1>, double*);                             \
  template void inverse_norms<T>(Cpu, Rows<const T>, double, View<Accum<T>, 1>);           \
  template void convert_values<T, double>(Cpu, View<const double, 1>, View<T, 1>);         \
  template void convert_values<T, float>(Cpu, View<const float, 1>, View<T, 1>);           \
  template void convert_values<T, bf16>(Cpu, View<const bf16, 1>, View<T, 1>);             \
  template void action_rows<T>(Cpu, View<const Accum<T>, 2>, View<const std::uint32_t, 1>, \
                               Rows<T>);                                                   \
  template void action_rows_backward<T>(Cpu, Rows<const T>, View<const std::uint32_t, 1>,  \
                                        View<Accum<T>, 2>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE
template void convert_values<float, f16>(Cpu, View<const f16, 1>, View<float, 1>);
template void convert_values<bf16, f16>(Cpu, View<const f16, 1>, View<bf16, 1>);
template void fill<std::int64_t>(Cpu, std::int64_t, View<std::int64_t, 1>);
template void fill<std::int32_t>(Cpu, std::int32_t, View<std::int32_t, 1>);

}  // namespace turbogr::ops::kernels
