#include "turbogr/ops/dense/swish_norm.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/norm_kernels.h"

namespace turbogr::ops {

template <class T>
void swish_norm(const Context& ctx, Rows<const T> x, const NormOptions<T>& options, Rows<T> y,
                const NormStatistics<Accum<T>>& statistics) {
  const char* op = "swish_norm";
  check_rows(op, "x", x, x.rows, x.cols);
  check_rows(op, "y", y, x.rows, x.cols);
  check_norm<T>(op, options, {statistics.mean, statistics.rstd}, x.rows, x.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) {
    kernels::norm<T>(device, x, {}, {.norm = options}, kernels::NormOutput::kSwish, y, statistics);
  });
}

template <class T>
void swish_norm_backward(const Context& ctx, Rows<const T> x, Rows<const T> dy,
                         const NormOptions<T>& options,
                         const NormStatistics<const Accum<T>>& statistics,
                         const SwishNormGradients<T>& gradients) {
  const char* op = "swish_norm_backward";
  check_rows(op, "x", x, x.rows, x.cols);
  check_rows(op, "dy", dy, x.rows, x.cols);
  check_rows(op, "dx", gradients.dx, x.rows, x.cols);
  check_norm<T>(op, options, statistics, x.rows, x.cols);
  if (gradients.dweight.data != nullptr) check_vector(op, "dweight", gradients.dweight, x.cols);
  if (gradients.dbias.data != nullptr) check_vector(op, "dbias", gradients.dbias, x.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) {
    kernels::norm_backward<T>(
        device, x, {}, dy, {}, {.norm = options}, kernels::NormOutput::kSwish, statistics,
        {.dx = gradients.dx, .dweight = gradients.dweight, .dbias = gradients.dbias});
  });
}

template <class T>
std::size_t swish_norm_workspace_bytes(const Context& ctx, std::int64_t cols) {
  return norm_workspace_bytes<T>(ctx, cols);
}

#define TGR_INSTANTIATE(T)                                                                   \
  template void swish_norm<T>(const Context&, Rows<const T>, const NormOptions<T>&, Rows<T>, \
                              const NormStatistics<Accum<T>>&);                              \
  template void swish_norm_backward<T>(                                                      \
      const Context&, Rows<const T>, Rows<const T>, const NormOptions<T>&,                   \
      const NormStatistics<const Accum<T>>&, const SwishNormGradients<T>&);                  \
  template std::size_t swish_norm_workspace_bytes<T>(const Context&, std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
