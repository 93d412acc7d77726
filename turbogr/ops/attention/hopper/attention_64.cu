// Attention kernels of head width 64.
#include "turbogr/ops/attention/hopper/attention_backward_kernel.cuh"
#include "turbogr/ops/attention/hopper/attention_convert.cuh"
#include "turbogr/ops/attention/hopper/attention_forward.cuh"
#include "turbogr/ops/attention/hopper/attention_query_gradient.cuh"

namespace turbogr::cuda {
namespace {

using Forward = ForwardConfig<64, 1, 64, 2, 3>;
using Backward = BackwardConfig<64, 2>;
using KeyGradient = KeyGradientConfig<64>;
using QueryGradient = QueryGradientConfig<64, 1, 2, 2, 2, 1, 3>;
using BiasQueryGradient = QueryGradientConfig<64, 1, 2, 2, 2, 2, 2>;

}  // namespace

template <>
ForwardShape AttentionKernels<64>::forward_shape(bool) {
  return {Forward::kQueries, Forward::kKeys};
}
template <>
BackwardShape AttentionKernels<64>::backward_shape() {
  return {Backward::kKeys, Backward::kQueries};
}
template <>
void AttentionKernels<64>::forward(const AttentionArgs& args, bool bias, cudaStream_t stream) {
  if (bias) {
    launch_forward<64, Forward, true>(args, stream);
  } else {
    launch_forward<64, Forward, false>(args, stream);
  }
}
template <>
void AttentionKernels<64>::backward(const AttentionArgs& args, bool bias, cudaStream_t stream) {
  if (bias) {
    launch_backward<64, Backward, true>(args, stream);
  } else {
    launch_backward<64, Backward, false>(args, stream);
  }
  launch_convert<64>(args, stream);
}
template <>
void AttentionKernels<64>::key_gradients(const AttentionArgs& args, bool bias,
                                         cudaStream_t stream) {
  if (bias) {
    launch_backward<64, KeyGradient, true>(args, stream);
  } else {
    launch_backward<64, KeyGradient, false>(args, stream);
  }
}
template <>
void AttentionKernels<64>::query_gradients(const AttentionArgs& args, bool bias,
                                           cudaStream_t stream) {
  if (bias) {
    launch_query_gradient<64, BiasQueryGradient, true>(args, stream);
  } else {
    launch_query_gradient<64, QueryGradient, false>(args, stream);
  }
}

}  // namespace turbogr::cuda
