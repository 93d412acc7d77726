#include "turbogr/ops/dense/gated_norm.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/norm_kernels.h"

namespace turbogr::ops {
namespace {

template <class T>
kernels::NormOutput output_of(const GatedNormOptions<T>& options) {
  if (!options.concat) return kernels::NormOutput::kGated;
  return options.concat_input ? kernels::NormOutput::kConcatInput : kernels::NormOutput::kConcat;
}

template <class T>
void check_gated_norm(const char* op, Rows<const T> x, Rows<const T> gate,
                      const GatedNormOptions<T>& options,
                      const NormStatistics<const Accum<T>>& statistics) {
  check_rows(op, "x", x, x.rows, x.cols);
  check_rows(op, "gate", gate, x.rows, x.cols);
  check_norm<T>(op, options.norm, statistics, x.rows, x.cols);
  check_dropout(op, options.dropout, x.rows);
  TGR_CHECK(options.concat || !options.concat_input, op,
            ": concat_input without concat; it says what concat puts in the middle");
}

}  // namespace

template <class T>
void gated_norm(const Context& ctx, Rows<const T> x, Rows<const T> gate,
                const GatedNormOptions<T>& options, Rows<T> y,
                const NormStatistics<Accum<T>>& statistics, const Fp8Rows<T>& y8) {
  check_gated_norm<T>("gated_norm", x, gate, options, {statistics.mean, statistics.rstd});
  check_rows("gated_norm", "y", y, x.rows, options.concat ? 3 * x.cols : x.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  bool done = false;
  on_device(ctx, [&](auto device) {
    const kernels::NormOutput output = output_of(options);
    done = y8.scale != nullptr &&
           kernels::norm_to_fp8<T>(device, x, gate, options, output, y8, statistics);
    if (!done) kernels::norm<T>(device, x, gate, options, output, y, statistics);
  });
  if (y8.scale != nullptr && !done) quantise<T>(ctx, y, y8);
}

template <class T>
void gated_norm_backward(const Context& ctx, Rows<const T> x, Rows<const T> gate, Rows<const T> dy,
                         const GatedNormOptions<T>& options,
                         const NormStatistics<const Accum<T>>& statistics,
                         const GatedNormGradients<T>& gradients) {
  const char* op = "gated_norm_backward";
  check_gated_norm<T>(op, x, gate, options, statistics);
  check_rows(op, "dy", dy, x.rows, options.concat ? 3 * x.cols : x.cols);
  check_rows(op, "dx", gradients.dx, x.rows, x.cols);
  check_rows(op, "dgate", gradients.dgate, x.rows, x.cols);
  if (gradients.dweight.data != nullptr) check_vector(op, "dweight", gradients.dweight, x.cols);
  if (gradients.dbias.data != nullptr) check_vector(op, "dbias", gradients.dbias, x.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) {
    kernels::norm_backward<T>(device, x, gate, dy, {}, options, output_of(options), statistics,
                              gradients);
  });
}

template <class T>
std::size_t gated_norm_workspace_bytes(const Context& ctx, std::int64_t cols) {
  std::size_t bytes = 0;
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { bytes = kernels::norm_workspace_bytes<T>(device, cols); });
  return bytes;
}

#define TGR_INSTANTIATE(T)                                                                     \
  template void gated_norm<T>(const Context&, Rows<const T>, Rows<const T>,                    \
                              const GatedNormOptions<T>&, Rows<T>,                             \
                              const NormStatistics<Accum<T>>&, const Fp8Rows<T>&);             \
  template void gated_norm_backward<T>(                                                        \
      const Context&, Rows<const T>, Rows<const T>, Rows<const T>, const GatedNormOptions<T>&, \
      const NormStatistics<const Accum<T>>&, const GatedNormGradients<T>&);                    \
  template std::size_t gated_norm_workspace_bytes<T>(const Context&, std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
