// Attention kernels of head width 32.
#include "turbogr/ops/attention/hopper/attention_width.cuh"

namespace turbogr::cuda {

template <>
struct WidthConfigs<32> {
  using Forward = ForwardConfig<32, 2, 128, 2, 1>;
  using BiasForward = Forward;
  using Backward = BackwardConfig<32>;
  using KeyGradient = KeyGradientConfig<32>;
  using QueryGradient = QueryGradientConfig<32, 2, 2, 2, 2, 2, 1>;
  using BiasQueryGradient = QueryGradient;
};
template struct AttentionKernels<32>;

}  // namespace turbogr::cuda
