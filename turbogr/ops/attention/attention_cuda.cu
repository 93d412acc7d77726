// Attention on a GPU: Hopper's kernels where they serve, the portable ones elsewhere.
#include <algorithm>

#include "turbogr/ops/attention/attention_kernels.h"
#include "turbogr/ops/attention/hopper/attention_hopper.h"
#include "turbogr/ops/attention/portable/attention_portable.h"

namespace turbogr::ops::kernels {

template <class T>
void hstu_attention(Cuda cuda, const AttentionProblem<T>& problem, Rows<T> out) {
  if (hopper_attention(cuda, AttentionKind::kHstu, problem, out)) return;
  portable_attention(cuda, AttentionKind::kHstu, problem, out);
}

template <class T>
bool hstu_attention_backward(Cuda cuda, const AttentionProblem<T>& problem, Rows<const T> dout,
                             const AttentionGradients<T>& gradients) {
  if (hopper_attention_backward(cuda, AttentionKind::kHstu, problem, dout, gradients)) return true;
  portable_attention_backward(cuda, AttentionKind::kHstu, problem, dout, gradients);
  return false;
}

template <class T>
void fuxi_attention(Cuda cuda, const AttentionProblem<T>& problem, Rows<T> out) {
  if (hopper_attention(cuda, AttentionKind::kFuxi, problem, out)) return;
  portable_attention(cuda, AttentionKind::kFuxi, problem, out);
}

template <class T>
void fuxi_attention_backward(Cuda cuda, const AttentionProblem<T>& problem, Rows<const T> dout,
                             const AttentionGradients<T>& gradients) {
  if (hopper_attention_backward(cuda, AttentionKind::kFuxi, problem, dout, gradients)) return;
  portable_attention_backward(cuda, AttentionKind::kFuxi, problem, dout, gradients);
}

template <class T>
std::size_t attention_workspace_bytes(AttentionKind kind, const AttentionShape& shape,
                                      bool backward) {
  const std::size_t portable = portable_attention_workspace_bytes<T>(shape, backward);
  if (shape.planned || !hopper_serves<T>(kind, shape)) return portable;
  return std::max(portable, hopper_bytes(kind, shape, backward));
}

template <class T>
std::size_t attention_plan_bytes(AttentionKind kind, const AttentionShape& shape) {
  return hopper_serves<T>(kind, shape) ? hopper_bytes(kind, shape, /*backward=*/true) : 0;
}

template <class T>
std::size_t attention_kept_bytes(AttentionKind kind, const AttentionShape& shape) {
  return hopper_serves<T>(kind, shape) ? hopper_kept_bytes(kind, shape) : 0;
}

void make_attention_plan(Cuda cuda, const AttentionBatch& batch, const AttentionPlan& plan) {
  make_hopper_plan(cuda, batch, plan);
}

#define TGR_INSTANTIATE(T)                                                                       \
  template void hstu_attention<T>(Cuda, const AttentionProblem<T>&, Rows<T>);                    \
  template bool hstu_attention_backward<T>(Cuda, const AttentionProblem<T>&, Rows<const T>,      \
                                           const AttentionGradients<T>&);                        \
  template void fuxi_attention<T>(Cuda, const AttentionProblem<T>&, Rows<T>);                    \
  template void fuxi_attention_backward<T>(Cuda, const AttentionProblem<T>&, Rows<const T>,      \
                                           const AttentionGradients<T>&);                        \
  template std::size_t attention_workspace_bytes<T>(AttentionKind, const AttentionShape&, bool); \
  template std::size_t attention_plan_bytes<T>(AttentionKind, const AttentionShape&);            \
  template std::size_t attention_kept_bytes<T>(AttentionKind, const AttentionShape&);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
