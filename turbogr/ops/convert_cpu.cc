#include <algorithm>
#include <cmath>

#include "turbogr/ops/convert_kernels.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kPiece = 1 << 16;

}  // namespace

template <class To, class From>
void convert_values(Cpu cpu, View<const From, 1> from, View<To, 1> to) {
  parallel_ranges(cpu.pool, from.shape[0], kPiece, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) to.data[i] = convert<To>(from.data[i]);
  });
}

template <class T>
void fill(Cpu cpu, T value, View<T, 1> to) {
  parallel_ranges(cpu.pool, to.shape[0], kPiece, [&](std::int64_t begin, std::int64_t end, int) {
    std::fill(to.data + begin, to.data + end, value);
  });
}

template <class T>
void sum_values(Cpu cpu, View<const T, 1> values, double* sum) {
  WorkspaceScope scratch(cpu.workspace);
  const std::int64_t count = values.shape[0];
  const View<double, 1> sums = scratch.take<double>((count + kSumPiece - 1) / kSumPiece);
  parallel_for(cpu.pool, sums.shape[0], [&](std::int64_t piece, int) {
    double total = 0;
    const std::int64_t end = std::min(count, (piece + 1) * kSumPiece);
    for (std::int64_t i = piece * kSumPiece; i < end; ++i) total += convert<double>(values.data[i]);
    sums(piece) = total;
  });
  *sum = 0;
  for (std::int64_t piece = 0; piece < sums.shape[0]; ++piece) *sum += sums(piece);
}

template <class T>
void inverse_norms(Cpu cpu, Rows<const T> x, double eps, View<Accum<T>, 1> inverse) {
  parallel_ranges(cpu.pool, x.rows, 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      double squares = 0;
      for (std::int64_t c = 0; c < x.cols; ++c) {
        const double value = convert<double>(x(r, c));
        squares += value * value;
      }
      inverse(r) = static_cast<Accum<T>>(1 / std::max(std::sqrt(squares), eps));
    }
  });
}

#define TGR_CONVERT(To, From) \
  template void convert_values<To, From>(Cpu, View<const From, 1>, View<To, 1>);
#define TGR_INSTANTIATE(T)                                     \
  TGR_CONVERT(T, double)                                       \
  TGR_CONVERT(T, float)                                        \
  TGR_CONVERT(T, bf16)                                         \
  template void sum_values<T>(Cpu, View<const T, 1>, double*); \
  template void inverse_norms<T>(Cpu, Rows<const T>, double, View<Accum<T>, 1>);
#define TGR_FILL(T) template void fill<T>(Cpu, T, View<T, 1>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
TGR_FILL(double)
TGR_FILL(float)
TGR_FILL(bf16)
TGR_FILL(std::int64_t)
TGR_FILL(std::int32_t)
#undef TGR_CONVERT
#undef TGR_INSTANTIATE
#undef TGR_FILL

}  // namespace turbogr::ops::kernels
