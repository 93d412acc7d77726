// Attention kernels of head width 64.
#include "turbogr/ops/attention/hopper/attention_width.cuh"

namespace turbogr::cuda {

template <>
struct WidthConfigs<64> {
  using Forward = ForwardConfig<64, 1, 64, 2, 3>;
  using BiasForward = Forward;
  using Backward = BackwardConfig<64>;
  using KeyGradient = KeyGradientConfig<64>;
  using QueryGradient = QueryGradientConfig<64, 1, 2, 2, 2, 1, 3>;
  using BiasQueryGradient = QueryGradientConfig<64, 1, 2, 2, 2, 2, 2>;
};
template struct AttentionKernels<64>;

}  // namespace turbogr::cuda
