// Stands for the kernels of this folder in a build for other GPUs (CMAKE_CUDA_ARCHITECTURES without
// 90), or for none: they take no call, so that the portable ones get all.
#include "turbogr/ops/attention/hopper/attention_hopper.h"

namespace turbogr::ops {

template <class T>
bool hopper_serves(AttentionKind, const AttentionShape&) {
  return false;
}

// Asked only where they serve.
std::size_t hopper_bytes(AttentionKind, const AttentionShape&, bool) { return 0; }
std::size_t hopper_kept_bytes(AttentionKind, const AttentionShape&) { return 0; }
void make_hopper_plan(Cuda, const AttentionBatch&, const AttentionPlan&) {}

template <class T>
bool hopper_attention(Cuda, AttentionKind, const AttentionProblem<T>&, Rows<T>) {
  return false;
}
template <class T>
bool hopper_attention_backward(Cuda, AttentionKind, const AttentionProblem<T>&, Rows<const T>,
                               const AttentionGradients<T>&) {
  return false;
}

#define TGR_INSTANTIATE(T)                                                                     \
  template bool hopper_serves<T>(AttentionKind, const AttentionShape&);                        \
  template bool hopper_attention<T>(Cuda, AttentionKind, const AttentionProblem<T>&, Rows<T>); \
  template bool hopper_attention_backward<T>(Cuda, AttentionKind, const AttentionProblem<T>&,  \
                                             Rows<const T>, const AttentionGradients<T>&);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
