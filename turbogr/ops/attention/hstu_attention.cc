#include "turbogr/ops/attention/hstu_attention.h"

#include <type_traits>

#include "turbogr/ops/attention/attention_checks.h"
#include "turbogr/ops/attention/attention_kernels.h"
#include "turbogr/ops/attention/cpu/attention_cpu.h"
#include "turbogr/ops/dense/silu.h"

namespace turbogr::ops {
namespace {

template <class T>
AttentionProblem<T> problem_of(Jagged<const T> q, Rows<const T> k, Rows<const T> v,
                               const AttentionBias<T>& bias, const HstuAttentionOptions& options) {
  return {.q = q,
          .k = k,
          .v = v,
          .bias = bias,
          .heads = options.heads,
          .alpha = options.alpha,
          .norm_length = options.norm_length,
          .mask = options.mask,
          .max_length = options.max_length,
          .plan = options.plan,
          .kept = options.kept,
          .kept_ready = options.kept_ready,
          .deterministic = options.deterministic};
}

}  // namespace

template <class T>
void hstu_attention(const Context& ctx, Jagged<const T> q, Rows<const T> k, Rows<const T> v,
                    const AttentionBias<T>& bias, const HstuAttentionOptions& options,
                    Rows<T> out) {
  check_attention_inputs("hstu_attention", ctx.device(), q, k, v, bias, options.heads,
                         options.alpha, options.norm_length, options.mask);
  check_rows("hstu_attention", "out", out, q.tokens(), v.cols);
  const SectionScope section = section_scope(ctx, Section::kAttentionForward);
  on_device(ctx, [&](auto device) {
    kernels::hstu_attention<T>(device, problem_of(q, k, v, bias, options), out);
  });
}

template <class T>
void hstu_attention_backward(const Context& ctx, Jagged<const T> q, Rows<const T> k,
                             Rows<const T> v, const AttentionBias<T>& bias,
                             const HstuAttentionOptions& options, Rows<const T> dout, Rows<T> dq,
                             Rows<T> dk, Rows<T> dv, const AttentionBiasGradient<T>& dbias,
                             const BeforeSilu<T>& before) {
  constexpr const char* kOp = "hstu_attention_backward";
  check_attention_inputs(kOp, ctx.device(), q, k, v, bias, options.heads, options.alpha,
                         options.norm_length, options.mask);
  check_rows(kOp, "dout", dout, q.tokens(), v.cols);
  check_attention_gradients(kOp, q, v, bias, dq, dk, dv, dbias);
  if (!before.empty()) {
    check_rows(kOp, "q before SiLU", before.q, q.tokens(), q.width());
    check_rows(kOp, "k before SiLU", before.k, q.tokens(), q.width());
    check_rows(kOp, "v before SiLU", before.v, q.tokens(), v.cols);
  }
  bool q_done = false;
  {
    const SectionScope section = section_scope(ctx, Section::kAttentionBackward);
    on_device(ctx, [&](auto device) {
      q_done =
          kernels::hstu_attention_backward<T>(device, problem_of(q, k, v, bias, options), dout,
                                              {dq, dk, dv, dbias, before.q, before.k, before.v});
    });
  }
  if (before.empty() || (q_done && ctx.device() == Device::kCpu)) return;
  if (!q_done) silu_backward<T>(ctx, before.q, dq, dq);
  silu_backward<T>(ctx, before.k, dk, dk);
  silu_backward<T>(ctx, before.v, dv, dv);
}

template <class T>
std::size_t hstu_attention_workspace_bytes(const AttentionShape& shape) {
  if constexpr (kWithCuda) {
    if (shape.device == Device::kCuda) {
      return kernels::attention_workspace_bytes<T>(AttentionKind::kHstu, shape, false);
    }
  }
  if (std::is_same_v<T, double>) return 0;
  return attention_workspace_bytes(shape, TableRole::kBias);
}

template <class T>
std::size_t hstu_attention_backward_workspace_bytes(const AttentionShape& shape) {
  if constexpr (kWithCuda) {
    if (shape.device == Device::kCuda) {
      return kernels::attention_workspace_bytes<T>(AttentionKind::kHstu, shape, true);
    }
  }
  if (std::is_same_v<T, double>) return 0;
  return attention_backward_workspace_bytes(shape, TableRole::kBias);
}

#define TGR_INSTANTIATE(T)                                                                        \
  template void hstu_attention<T>(const Context&, Jagged<const T>, Rows<const T>, Rows<const T>,  \
                                  const AttentionBias<T>&, const HstuAttentionOptions&, Rows<T>); \
  template void hstu_attention_backward<T>(                                                       \
      const Context&, Jagged<const T>, Rows<const T>, Rows<const T>, const AttentionBias<T>&,     \
      const HstuAttentionOptions&, Rows<const T>, Rows<T>, Rows<T>, Rows<T>,                      \
      const AttentionBiasGradient<T>&, const BeforeSilu<T>&);                                     \
  template std::size_t hstu_attention_workspace_bytes<T>(const AttentionShape&);                  \
  template std::size_t hstu_attention_backward_workspace_bytes<T>(const AttentionShape&);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
