#include "turbogr/ops/dense/norm.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/norm_kernels.h"

namespace turbogr::ops {

template <class T>
void check_norm(const char* op, const NormOptions<T>& options,
                const NormStatistics<const Accum<T>>& statistics, std::int64_t rows,
                std::int64_t cols) {
  TGR_CHECK(cols > 0, op, ": rows have no columns; a norm needs at least 1");
  TGR_CHECK(options.eps > 0, op, ": eps is ", options.eps, "; it must be above 0");
  if (options.weight.data != nullptr) check_vector(op, "weight", options.weight, cols);
  if (options.bias.data != nullptr) check_vector(op, "bias", options.bias, cols);
  if (options.kind == NormKind::kLayer) check_vector(op, "mean", statistics.mean, rows);
  check_vector(op, "rstd", statistics.rstd, rows);
}

template <class T>
void norm(const Context& ctx, Rows<const T> x, const NormOptions<T>& options, Rows<T> y,
          const NormStatistics<Accum<T>>& statistics, const Fp8Rows<T>& y8) {
  check_rows("norm", "x", x, x.rows, x.cols);
  check_rows("norm", "y", y, x.rows, x.cols);
  check_norm<T>("norm", options, {statistics.mean, statistics.rstd}, x.rows, x.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  bool done = false;
  on_device(ctx, [&](auto device) {
    constexpr auto kPlain = kernels::NormOutput::kPlain;
    const GatedNormOptions<T> plain = {.norm = options};
    done = y8.scale != nullptr &&
           kernels::norm_to_fp8<T>(device, x, {}, plain, kPlain, y8, statistics);
    if (!done) kernels::norm<T>(device, x, {}, plain, kPlain, y, statistics);
  });
  if (y8.scale != nullptr && !done) quantise<T>(ctx, y, y8);
}

template <class T>
void norm_backward(const Context& ctx, Rows<const T> x, Rows<const T> dy,
                   const NormOptions<T>& options, const NormStatistics<const Accum<T>>& statistics,
                   const NormGradients<T>& gradients) {
  check_rows("norm_backward", "x", x, x.rows, x.cols);
  check_rows("norm_backward", "dy", dy, x.rows, x.cols);
  check_rows("norm_backward", "dx", gradients.dx, x.rows, x.cols);
  if (gradients.residual.data != nullptr) {
    check_rows("norm_backward", "residual", gradients.residual, x.rows, x.cols);
  }
  if (gradients.residual_sums.data != nullptr) {
    TGR_CHECK(gradients.residual.data != nullptr,
              "norm_backward: residual_sums without a residual; give both or neither");
    check_vector("norm_backward", "residual_sums", gradients.residual_sums, x.cols);
  }
  check_norm<T>("norm_backward", options, statistics, x.rows, x.cols);
  if (gradients.dweight.data != nullptr) {
    check_vector("norm_backward", "dweight", gradients.dweight, x.cols);
  }
  if (gradients.dbias.data != nullptr) {
    check_vector("norm_backward", "dbias", gradients.dbias, x.cols);
  }
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) {
    kernels::norm_backward<T>(
        device, x, {}, dy, {gradients.residual, gradients.residual_sums}, {.norm = options},
        kernels::NormOutput::kPlain, statistics,
        {.dx = gradients.dx, .dweight = gradients.dweight, .dbias = gradients.dbias});
  });
}

template <class T>
std::size_t norm_workspace_bytes(const Context& ctx, std::int64_t cols) {
  std::size_t bytes = 0;
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { bytes = kernels::norm_workspace_bytes<T>(device, cols); });
  return bytes;
}

#define TGR_INSTANTIATE(T)                                                                        \
  template void check_norm<T>(const char*, const NormOptions<T>&,                                 \
                              const NormStatistics<const Accum<T>>&, std::int64_t, std::int64_t); \
  template void norm<T>(const Context&, Rows<const T>, const NormOptions<T>&, Rows<T>,            \
                        const NormStatistics<Accum<T>>&, const Fp8Rows<T>&);                      \
  template void norm_backward<T>(const Context&, Rows<const T>, Rows<const T>,                    \
                                 const NormOptions<T>&, const NormStatistics<const Accum<T>>&,    \
                                 const NormGradients<T>&);                                        \
  template std::size_t norm_workspace_bytes<T>(const Context&, std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
