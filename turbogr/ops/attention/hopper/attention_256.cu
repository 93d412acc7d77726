// Attention kernels of head width 256.
#include "turbogr/ops/attention/hopper/attention_width.cuh"

namespace turbogr::cuda {

template <>
struct WidthConfigs<256> {
  using Forward = ForwardConfig<256, 2, 80, 2, 1>;
  // The bias needs room of its own.
  using BiasForward = ForwardConfig<256, 2, 64, 2, 1>;
  using Backward = WideConfig<256, false>;
  using KeyGradient = WideConfig<256, true>;
  using QueryGradient = QueryGradientConfig<256, 2, 2, 1, 1, 1, 1>;
  using BiasQueryGradient = QueryGradientConfig<256, 2, 1, 1, 1, 1, 1>;
};
template struct AttentionKernels<256>;

}  // namespace turbogr::cuda
