// Attention kernels of head width 128.
#include "turbogr/ops/attention/hopper/attention_width.cuh"

namespace turbogr::cuda {

template <>
struct WidthConfigs<128> {
  using Forward = ForwardConfig<128, 2, 128, 2, 1>;
  using BiasForward = Forward;
  using Backward = BackwardConfig<128>;
  using KeyGradient = KeyGradientConfig<128>;
  using QueryGradient = QueryGradientConfig<128, 2, 2, 2, 2, 2, 1>;
  using BiasQueryGradient = QueryGradient;
};
template struct AttentionKernels<128>;

}  // namespace turbogr::cuda
