#include <algorithm>
#include <type_traits>

#include "turbogr/ops/dense/dropout_mask.h"
#include "turbogr/ops/rows/combine_input_kernels.h"
#include "turbogr/ops/rows/combine_input_simd.h"

namespace turbogr::ops::kernels {
namespace {

// Calls body(row, position) for every row, in pieces of rows.
template <class Body>
void for_rows(Cpu cpu, Offsets offsets, std::int64_t rows, Body&& body) {
  parallel_ranges(cpu.pool, rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    const std::int64_t* last = offsets.data + offsets.shape[0];
    const std::int64_t* next = std::upper_bound(offsets.data, last, begin);
    for (std::int64_t r = begin; r < end; ++r) {
      while (*next <= r) ++next;  // steps over empty sequences too
      body(r, r - *(next - 1));
    }
  });
}

// Calls body(row, position) for every row, in pieces of positions: one thread has all rows of a
// position, in the order of the sequences.
template <class Body>
void for_positions(Cpu cpu, Offsets offsets, Body&& body) {
  const std::int64_t batch = offsets.shape[0] - 1;
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    longest = std::max(longest, offsets(b + 1) - offsets(b));
  }
  parallel_ranges(cpu.pool, longest, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t length = offsets(b + 1) - offsets(b);
      for (std::int64_t s = begin; s < std::min(end, length); ++s) body(offsets(b) + s, s);
    }
  });
}

template <class T>
DropoutRowArgs draw_of(const CombineInputOptions<T>& options, std::int64_t row, std::int64_t cols) {
  const DropoutRow draw = dropout_row(options.dropout, row);
  return {draw.seed, draw.row_key, draw.site, draw.threshold, static_cast<float>(draw.scale), cols};
}

}  // namespace

template <class T>
void combine_input(Cpu cpu, Jagged<const T> e, View<const T, 2> p,
                   const CombineInputOptions<T>& options, Rows<T> x) {
  const auto forward = combine_input_table(cpu.simd).of<T>().forward;
  const auto scale = static_cast<float>(options.scale);
  for_rows(cpu, e.offsets, e.tokens(), [&](std::int64_t r, std::int64_t position) {
    forward(draw_of(options, r, e.width()), scale, e.values.row(r), &p(position, 0),
            options.extra.data == nullptr ? nullptr : options.extra.row(r), x.row(r));
  });
}

template <class T>
void combine_input_backward(Cpu cpu, Jagged<const T> dx, const CombineInputOptions<T>& options,
                            const CombineInputGradients<T>& gradients) {
  const auto backward = combine_input_table(cpu.simd).of<T>().backward;
  const auto scale = static_cast<float>(options.scale);
  const bool positions = gradients.dp.data != nullptr;
  const bool extra = gradients.dextra.data != nullptr;
  for_positions(cpu, dx.offsets, [&](std::int64_t r, std::int64_t position) {
    backward(draw_of(options, r, dx.width()), scale, dx.values.row(r), gradients.de.row(r),
             positions ? &gradients.dp(position, 0) : nullptr,
             extra ? gradients.dextra.row(r) : nullptr);
  });
}

// The specification.
template <>
void combine_input<double>(Cpu cpu, Jagged<const double> e, View<const double, 2> p,
                           const CombineInputOptions<double>& options, Rows<double> x) {
  for_rows(cpu, e.offsets, e.tokens(), [&](std::int64_t r, std::int64_t position) {
    const DropoutRow drop = dropout_row(options.dropout, r);
    for (std::int64_t c = 0; c < e.width(); ++c) {
      double value = options.scale * e.values(r, c) + p(position, c);
      if (options.extra.data != nullptr) value += options.extra(r, c);
      x(r, c) = value * drop.factor(c);
    }
  });
}

template <>
void combine_input_backward<double>(Cpu cpu, Jagged<const double> dx,
                                    const CombineInputOptions<double>& options,
                                    const CombineInputGradients<double>& gradients) {
  for_positions(cpu, dx.offsets, [&](std::int64_t r, std::int64_t position) {
    const DropoutRow drop = dropout_row(options.dropout, r);
    for (std::int64_t c = 0; c < dx.width(); ++c) {
      const double d = dx.values(r, c) * drop.factor(c);
      gradients.de(r, c) = options.scale * d;
      if (gradients.dp.data != nullptr) gradients.dp(position, c) += d;
      if (gradients.dextra.data != nullptr) gradients.dextra(r, c) = d;
    }
  });
}

#define TGR_INSTANTIATE(T)                                                                     \
  template void combine_input<T>(Cpu, Jagged<const T>, View<const T, 2>,                       \
                                 const CombineInputOptions<T>&, Rows<T>);                      \
  template void combine_input_backward<T>(Cpu, Jagged<const T>, const CombineInputOptions<T>&, \
                                          const CombineInputGradients<T>&);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
