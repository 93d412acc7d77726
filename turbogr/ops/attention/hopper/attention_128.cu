// Attention kernels of head width 128.
#include "turbogr/ops/attention/hopper/attention_backward_kernel.cuh"
#include "turbogr/ops/attention/hopper/attention_convert.cuh"
#include "turbogr/ops/attention/hopper/attention_forward.cuh"
#include "turbogr/ops/attention/hopper/attention_query_gradient.cuh"

namespace turbogr::cuda {
namespace {

using Forward = ForwardConfig<128, 2, 128, 2, 1>;
using Backward = BackwardConfig<128, 2>;
using KeyGradient = KeyGradientConfig<128>;
using QueryGradient = QueryGradientConfig<128, 2, 2, 2, 2, 2, 1>;

}  // namespace

template <>
ForwardShape AttentionKernels<128>::forward_shape(bool) {
  return {Forward::kQueries, Forward::kKeys};
}
template <>
BackwardShape AttentionKernels<128>::backward_shape() {
  return {Backward::kKeys, Backward::kQueries};
}
template <>
void AttentionKernels<128>::forward(const AttentionArgs& args, bool bias, cudaStream_t stream) {
  if (bias) {
    launch_forward<128, Forward, true>(args, stream);
  } else {
    launch_forward<128, Forward, false>(args, stream);
  }
}
template <>
void AttentionKernels<128>::backward(const AttentionArgs& args, bool bias, cudaStream_t stream) {
  if (bias) {
    launch_backward<128, Backward, true>(args, stream);
  } else {
    launch_backward<128, Backward, false>(args, stream);
  }
  launch_convert<128>(args, stream);
}
template <>
void AttentionKernels<128>::key_gradients(const AttentionArgs& args, bool bias,
                                          cudaStream_t stream) {
  if (bias) {
    launch_backward<128, KeyGradient, true>(args, stream);
  } else {
    launch_backward<128, KeyGradient, false>(args, stream);
  }
}
template <>
void AttentionKernels<128>::query_gradients(const AttentionArgs& args, bool bias,
                                            cudaStream_t stream) {
  if (bias) {
    launch_query_gradient<128, QueryGradient, true>(args, stream);
  } else {
    launch_query_gradient<128, QueryGradient, false>(args, stream);
  }
}

}  // namespace turbogr::cuda
