#include "turbogr/ops/attention/fuxi_attention.h"

#include <type_traits>

#include "turbogr/ops/attention/attention_checks.h"
#include "turbogr/ops/attention/attention_kernels.h"
#include "turbogr/ops/attention/cpu/attention_cpu.h"

namespace turbogr::ops {
namespace {

template <class T>
AttentionProblem<T> problem_of(Jagged<const T> q, Rows<const T> k, Rows<const T> v,
                               const AttentionBias<T>& maps, const FuxiAttentionOptions& options) {
  return {.q = q,
          .k = k,
          .v = v,
          .bias = maps,
          .heads = options.heads,
          .alpha = options.alpha,
          .norm_length = options.norm_length,
          .mask = options.mask,
          .plan = options.plan,
          .deterministic = options.deterministic};
}

}  // namespace

template <class T>
void fuxi_attention(const Context& ctx, Jagged<const T> q, Rows<const T> k, Rows<const T> v,
                    const AttentionBias<T>& maps, const FuxiAttentionOptions& options,
                    Rows<T> out) {
  check_attention_inputs("fuxi_attention", ctx.device(), q, k, v, maps, options.heads,
                         options.alpha, options.norm_length, options.mask);
  check_rows("fuxi_attention", "out", out, q.tokens(), 3 * v.cols);
  const SectionScope section = section_scope(ctx, Section::kAttentionForward);
  on_device(ctx, [&](auto device) {
    kernels::fuxi_attention<T>(device, problem_of(q, k, v, maps, options), out);
  });
}

template <class T>
void fuxi_attention_backward(const Context& ctx, Jagged<const T> q, Rows<const T> k,
                             Rows<const T> v, const AttentionBias<T>& maps,
                             const FuxiAttentionOptions& options, Rows<const T> dout, Rows<T> dq,
                             Rows<T> dk, Rows<T> dv, const AttentionBiasGradient<T>& dmaps) {
  constexpr const char* kOp = "fuxi_attention_backward";
  check_attention_inputs(kOp, ctx.device(), q, k, v, maps, options.heads, options.alpha,
                         options.norm_length, options.mask);
  check_rows(kOp, "dout", dout, q.tokens(), 3 * v.cols);
  check_attention_gradients(kOp, q, v, maps, dq, dk, dv, dmaps);
  const SectionScope section = section_scope(ctx, Section::kAttentionBackward);
  on_device(ctx, [&](auto device) {
    kernels::fuxi_attention_backward<T>(device, problem_of(q, k, v, maps, options), dout,
                                        {dq, dk, dv, dmaps});
  });
}

template <class T>
std::size_t fuxi_attention_workspace_bytes(const AttentionShape& shape) {
  if constexpr (kWithCuda) {
    if (shape.device == Device::kCuda) {
      return kernels::attention_workspace_bytes<T>(AttentionKind::kFuxi, shape, false);
    }
  }
  if (std::is_same_v<T, double>) return 0;
  return attention_workspace_bytes(shape, TableRole::kMaps);
}

template <class T>
std::size_t fuxi_attention_backward_workspace_bytes(const AttentionShape& shape) {
  if constexpr (kWithCuda) {
    if (shape.device == Device::kCuda) {
      return kernels::attention_workspace_bytes<T>(AttentionKind::kFuxi, shape, true);
    }
  }
  if (std::is_same_v<T, double>) return 0;
  return attention_backward_workspace_bytes(shape, TableRole::kMaps);
}

#define TGR_INSTANTIATE(T)                                                                        \
  template void fuxi_attention<T>(const Context&, Jagged<const T>, Rows<const T>, Rows<const T>,  \
                                  const AttentionBias<T>&, const FuxiAttentionOptions&, Rows<T>); \
  template void fuxi_attention_backward<T>(const Context&, Jagged<const T>, Rows<const T>,        \
                                           Rows<const T>, const AttentionBias<T>&,                \
                                           const FuxiAttentionOptions&, Rows<const T>, Rows<T>,   \
                                           Rows<T>, Rows<T>, const AttentionBiasGradient<T>&);    \
  template std::size_t fuxi_attention_workspace_bytes<T>(const AttentionShape&);                  \
  template std::size_t fuxi_attention_backward_workspace_bytes<T>(const AttentionShape&);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
