#include "turbogr/ops/attention/attention_plan.h"

#include "turbogr/ops/attention/attention_kernels.h"

namespace turbogr::ops {

template <class T>
std::size_t attention_plan_bytes(AttentionKind kind, const AttentionShape& shape) {
  if constexpr (kWithCuda) {
    if (shape.device == Device::kCuda) return kernels::attention_plan_bytes<T>(kind, shape);
  }
  return 0;
}

template <class T>
std::size_t attention_kept_bytes(AttentionKind kind, const AttentionShape& shape) {
  if constexpr (kWithCuda) {
    if (shape.device == Device::kCuda) return kernels::attention_kept_bytes<T>(kind, shape);
  }
  return 0;
}

template <class T>
AttentionPlan make_attention_plan(const Context& ctx, AttentionKind kind,
                                  const AttentionBatch& batch, const AttentionShape& shape,
                                  Tensor& memory) {
  AttentionPlan plan = {kind, shape, memory.data(), attention_plan_bytes<T>(kind, shape)};
  if (plan.bytes > memory.bytes()) plan.bytes = 0;
  if constexpr (kWithCuda) {
    if (plan.bytes > 0) {
      kernels::make_attention_plan(Cuda{ctx.stream(), ctx.workspace()}, batch, plan);
    }
  }
  return plan;
}

#define TGR_INSTANTIATE(T)                                                            \
  template std::size_t attention_plan_bytes<T>(AttentionKind, const AttentionShape&); \
  template std::size_t attention_kept_bytes<T>(AttentionKind, const AttentionShape&); \
  template AttentionPlan make_attention_plan<T>(                                      \
      const Context&, AttentionKind, const AttentionBatch&, const AttentionShape&, Tensor&);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
