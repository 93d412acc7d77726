#include "turbogr/ops/dense/convert.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/convert_kernels.h"

namespace turbogr::ops {

template <class To, class From>
void convert_values(const Context& ctx, View<const From, 1> from, View<To, 1> to) {
  check_vector("convert_values", "from", from, from.shape[0]);
  check_vector("convert_values", "to", to, from.shape[0]);
  const SectionScope section = section_scope(ctx, Section::kOptimiser);
  on_device(ctx, [&](auto device) { kernels::convert_values<To, From>(device, from, to); });
}

template <class T>
void fill(const Context& ctx, T value, View<T, 1> to) {
  check_vector("fill", "to", to, to.shape[0]);
  const SectionScope section = section_scope(ctx, Section::kOptimiser);
  on_device(ctx, [&](auto device) { kernels::fill<T>(device, value, to); });
}

template <class T>
void sum_values(const Context& ctx, View<const T, 1> values, double* sum) {
  check_vector("sum_values", "values", values, values.shape[0]);
  const SectionScope section = section_scope(ctx, Section::kOptimiser);
  on_device(ctx, [&](auto device) { kernels::sum_values<T>(device, values, sum); });
}

std::size_t sum_values_workspace_bytes(const Context&, std::int64_t count) {
  return workspace_bytes_of<double>((count + kernels::kSumPiece - 1) / kernels::kSumPiece);
}

template <class T>
void inverse_norms(const Context& ctx, Rows<const T> x, double eps, View<Accum<T>, 1> inverse) {
  TGR_CHECK(eps > 0, "inverse_norms: eps is ", eps, "; it must be above 0");
  check_rows("inverse_norms", "x", x, x.rows, x.cols);
  check_vector("inverse_norms", "inverse", inverse, x.rows);
  const SectionScope section = section_scope(ctx, Section::kOptimiser);
  on_device(ctx, [&](auto device) { kernels::inverse_norms<T>(device, x, eps, inverse); });
}

#define TGR_INSTANTIATE(T)                                                                    \
  template void fill<T>(const Context&, T, View<T, 1>);                                       \
  template void sum_values<T>(const Context&, View<const T, 1>, double*);                     \
  template void inverse_norms<T>(const Context&, Rows<const T>, double, View<Accum<T>, 1>);   \
  template void convert_values<T, double>(const Context&, View<const double, 1>, View<T, 1>); \
  template void convert_values<T, float>(const Context&, View<const float, 1>, View<T, 1>);   \
  template void convert_values<T, bf16>(const Context&, View<const bf16, 1>, View<T, 1>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE
template void convert_values<float, f16>(const Context&, View<const f16, 1>, View<float, 1>);
template void convert_values<bf16, f16>(const Context&, View<const f16, 1>, View<bf16, 1>);
template void fill<std::int64_t>(const Context&, std::int64_t, View<std::int64_t, 1>);
template void fill<std::int32_t>(const Context&, std::int32_t, View<std::int32_t, 1>);

}  // namespace turbogr::ops
