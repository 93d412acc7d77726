// Attention kernels of head width 256.
#include "turbogr/ops/attention/hopper/attention_backward_kernel.cuh"
#include "turbogr/ops/attention/hopper/attention_convert.cuh"
#include "turbogr/ops/attention/hopper/attention_forward.cuh"
#include "turbogr/ops/attention/hopper/attention_query_gradient.cuh"

namespace turbogr::cuda {
namespace {

using Forward = ForwardConfig<256, 2, 80, 2, 1>;
// The bias needs room of its own.
using BiasForward = ForwardConfig<256, 2, 64, 2, 1>;
using Backward = WideBackwardConfig<256, false>;
using KeyGradient = WideBackwardConfig<256, true>;
using QueryGradient = QueryGradientConfig<256, 2, 2, 1, 1, 1, 1>;
using BiasQueryGradient = QueryGradientConfig<256, 2, 1, 1, 1, 1, 1>;

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
template <>
void AttentionKernels<256>::key_gradients(const AttentionArgs& args, bool bias,
                                          cudaStream_t stream) {
  if (bias) {
    launch_backward<256, KeyGradient, true>(args, stream);
  } else {
    launch_backward<256, KeyGradient, false>(args, stream);
  }
}
template <>
void AttentionKernels<256>::query_gradients(const AttentionArgs& args, bool bias,
                                            cudaStream_t stream) {
  if (bias) {
    launch_query_gradient<256, BiasQueryGradient, true>(args, stream);
  } else {
    launch_query_gradient<256, QueryGradient, false>(args, stream);
  }
}

}  // namespace turbogr::cuda
