#include "turbogr/ops/attention/portable/attention_portable_launch.cuh"

namespace turbogr::ops {

TGR_INSTANTIATE_PORTABLE(bf16)

}  // namespace turbogr::ops
