// Attention kernels of head width 256.
#include "turbogr/ops/attention/hopper/attention_backward_kernel.cuh"
#include "turbogr/ops/attention/hopper/attention_convert.cuh"
#include "turbogr/ops/attention/hopper/attention_forward.cuh"

namespace turbogr::cuda {
namespace {

using Forward = ForwardConfig<256, 2, 80, 2, 1>;
// The bias needs room of its own.
using BiasForward = ForwardConfig<256, 2, 64, 2, 1>;
using Backward = WideBackwardConfig<256>;

}  // namespace

template <>
ForwardShape AttentionKernels<256>::forward_shape(bool bias) {
  return {Forward::kQueries, bias ? BiasForward::kKeys : Forward::kKeys};
}
template <>
BackwardShape AttentionKernels<256>::backward_shape() {
  return {Backward::kKeys, Backward::kQueries};
}
template <>
void AttentionKernels<256>::forward(const AttentionArgs& args, bool bias, cudaStream_t stream) {
  if (bias) {
    launch_forward<256, BiasForward, true>(args, stream);
  } else {
    launch_forward<256, Forward, false>(args, stream);
  }
}
template <>
void AttentionKernels<256>::backward(const AttentionArgs& args, bool bias, cudaStream_t stream) {
  if (bias) {
    launch_backward<256, Backward, true>(args, stream);
  } else {
    launch_backward<256, Backward, false>(args, stream);
  }
  launch_convert<256>(args, stream);
}

}  // namespace turbogr::cuda
