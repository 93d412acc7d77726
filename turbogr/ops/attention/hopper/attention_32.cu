// Attention kernels of head width 32.
#include "turbogr/ops/attention/hopper/attention_backward_kernel.cuh"
#include "turbogr/ops/attention/hopper/attention_convert.cuh"
#include "turbogr/ops/attention/hopper/attention_forward.cuh"
#include "turbogr/ops/attention/hopper/attention_query_gradient.cuh"

namespace turbogr::cuda {
namespace {

using Forward = ForwardConfig<32, 2, 128, 2, 1>;
using Backward = BackwardConfig<32, 2>;
using KeyGradient = KeyGradientConfig<32>;
using QueryGradient = QueryGradientConfig<32, 2, 2, 2, 2, 2, 1>;

}  // namespace

template <>
ForwardShape AttentionKernels<32>::forward_shape(bool) {
  return {Forward::kQueries, Forward::kKeys};
}
template <>
BackwardShape AttentionKernels<32>::backward_shape() {
  return {Backward::kKeys, Backward::kQueries};
}
template <>
void AttentionKernels<32>::forward(const AttentionArgs& args, bool bias, cudaStream_t stream) {
  if (bias) {
    launch_forward<32, Forward, true>(args, stream);
  } else {
    launch_forward<32, Forward, false>(args, stream);
  }
}
template <>
void AttentionKernels<32>::backward(const AttentionArgs& args, bool bias, cudaStream_t stream) {
  if (bias) {
    launch_backward<32, Backward, true>(args, stream);
  } else {
    launch_backward<32, Backward, false>(args, stream);
  }
  launch_convert<32>(args, stream);
}
template <>
void AttentionKernels<32>::key_gradients(const AttentionArgs& args, bool bias,
                                         cudaStream_t stream) {
  if (bias) {
    launch_backward<32, KeyGradient, true>(args, stream);
  } else {
    launch_backward<32, KeyGradient, false>(args, stream);
  }
}
template <>
void AttentionKernels<32>::query_gradients(const AttentionArgs& args, bool bias,
                                           cudaStream_t stream) {
  if (bias) {
    launch_query_gradient<32, QueryGradient, true>(args, stream);
  } else {
    launch_query_gradient<32, QueryGradient, false>(args, stream);
  }
}

}  // namespace turbogr::cuda
