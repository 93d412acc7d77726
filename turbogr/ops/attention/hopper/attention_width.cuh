// The kernels of one head width D: attention_<D>.cu says how its tiles are cut, in a
// WidthConfigs<D> with the configurations Forward, Backward, KeyGradient and QueryGradient
// (BiasForward and BiasQueryGradient where the kernels read a bias), and instantiates
// AttentionKernels<D>.
#pragma once

#include "turbogr/ops/attention/hopper/attention_backward_kernel.cuh"
#include "turbogr/ops/attention/hopper/attention_convert.cuh"
#include "turbogr/ops/attention/hopper/attention_forward.cuh"
#include "turbogr/ops/attention/hopper/attention_query_gradient.cuh"

namespace turbogr::cuda {

template <int D>
struct WidthConfigs;

template <int D>
ForwardShape AttentionKernels<D>::forward_shape(bool bias) {
  using Configs = WidthConfigs<D>;
  static_assert(Configs::Forward::kQueries == Configs::BiasForward::kQueries);
  static_assert(Configs::Forward::kQueries <= kMostTileRows &&
                Configs::Backward::kKeys <= kMostTileRows);
  return bias ? ForwardShape{Configs::BiasForward::kQueries, Configs::BiasForward::kKeys,
                             Configs::BiasForward::kBlocksPerSm}
              : ForwardShape{Configs::Forward::kQueries, Configs::Forward::kKeys,
                             Configs::Forward::kBlocksPerSm};
}
template <int D>
BackwardShape AttentionKernels<D>::backward_shape() {
  using Backward = typename WidthConfigs<D>::Backward;
  return {Backward::kKeys, Backward::kQueries};
}
template <int D>
void AttentionKernels<D>::forward(const AttentionArgs& args, bool bias, cudaStream_t stream) {
  if (bias) {
    launch_forward<D, typename WidthConfigs<D>::BiasForward, true>(args, stream);
  } else {
    launch_forward<D, typename WidthConfigs<D>::Forward, false>(args, stream);
  }
}
template <int D>
void AttentionKernels<D>::backward(const AttentionArgs& args, bool bias, cudaStream_t stream) {
  using Backward = typename WidthConfigs<D>::Backward;
  if (bias) {
    launch_backward<D, Backward, true>(args, stream);
  } else {
    launch_backward<D, Backward, false>(args, stream);
  }
}
template <int D>
void AttentionKernels<D>::dq_rows(const AttentionArgs& args, cudaStream_t stream) {
  launch_convert<D>(args, stream);
}
template <int D>
void AttentionKernels<D>::key_gradients(const AttentionArgs& args, bool bias, cudaStream_t stream) {
  using KeyGradient = typename WidthConfigs<D>::KeyGradient;
  if (bias) {
    launch_backward<D, KeyGradient, true>(args, stream);
  } else {
    launch_backward<D, KeyGradient, false>(args, stream);
  }
}
template <int D>
void AttentionKernels<D>::query_gradients(const AttentionArgs& args, bool bias,
                                          cudaStream_t stream) {
  if (bias) {
    launch_query_gradient<D, typename WidthConfigs<D>::BiasQueryGradient, true>(args, stream);
  } else {
    launch_query_gradient<D, typename WidthConfigs<D>::QueryGradient, false>(args, stream);
  }
}

}  // namespace turbogr::cuda
