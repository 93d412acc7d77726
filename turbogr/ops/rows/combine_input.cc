#include "turbogr/ops/rows/combine_input.h"

#include <algorithm>

#include "turbogr/ops/checks.h"
#include "turbogr/ops/rows/combine_input_kernels.h"

namespace turbogr::ops {
namespace {

void check_positions(const Context& ctx, const char* op, const char* table, Offsets offsets,
                     std::int64_t positions) {
  if (ctx.device() != Device::kCpu) return;
  for (std::int64_t b = 0; b + 1 < offsets.shape[0]; ++b) {
    const std::int64_t length = offsets(b + 1) - offsets(b);
    TGR_CHECK(length <= positions, op, ": sequence ", b, " has ", length, " rows and ", table,
              " has ", positions, " positions; cut the sequence or use a longer table");
  }
}

}  // namespace

template <class T>
void combine_input(const Context& ctx, Jagged<const T> e, View<const T, 2> p,
                   const CombineInputOptions<T>& options, Rows<T> x) {
  const char* op = "combine_input";
  check_rows(op, "e", e.values, e.tokens(), e.width());
  check_offsets(ctx, op, e.offsets, e.tokens());
  check_rows(op, "p", Rows<const T>(p), p.shape[0], e.width());
  check_positions(ctx, op, "p", e.offsets, p.shape[0]);
  check_rows(op, "x", x, e.tokens(), e.width());
  if (options.extra.data != nullptr) {
    check_rows(op, "extra", options.extra, e.tokens(), e.width());
  }
  check_dropout(op, options.dropout, e.tokens());
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::combine_input<T>(device, e, p, options, x); });
}

template <class T>
void combine_input_backward(const Context& ctx, Jagged<const T> dx,
                            const CombineInputOptions<T>& options,
                            const CombineInputGradients<T>& gradients) {
  const char* op = "combine_input_backward";
  check_rows(op, "dx", dx.values, dx.tokens(), dx.width());
  check_offsets(ctx, op, dx.offsets, dx.tokens());
  check_rows(op, "de", gradients.de, dx.tokens(), dx.width());
  if (gradients.dp.data != nullptr) {
    check_rows(op, "dp", Rows<Accum<T>>(gradients.dp), gradients.dp.shape[0], dx.width());
    check_positions(ctx, op, "dp", dx.offsets, gradients.dp.shape[0]);
  }
  if (gradients.dextra.data != nullptr) {
    check_rows(op, "dextra", gradients.dextra, dx.tokens(), dx.width());
  }
  check_dropout(op, options.dropout, dx.tokens());
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) {
    kernels::combine_input_backward<T>(device, dx, options, gradients);
  });
}

#define TGR_INSTANTIATE(T)                                                          \
  template void combine_input<T>(const Context&, Jagged<const T>, View<const T, 2>, \
                                 const CombineInputOptions<T>&, Rows<T>);           \
  template void combine_input_backward<T>(const Context&, Jagged<const T>,          \
                                          const CombineInputOptions<T>&,            \
                                          const CombineInputGradients<T>&);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
