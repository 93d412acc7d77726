#include "turbogr/model/flops.h"

namespace turbogr::model {

Flops forward_flops(const ModelOptions& o, std::span<const std::int64_t> lengths) {
  const auto width = static_cast<double>(o.width);
  const auto value = static_cast<double>(o.value_width());
  const auto query = static_cast<double>(o.query_width());
  double per_token = 2 * width * static_cast<double>(o.projection_width() + o.mixed_width());
  // Columns that each pair of tokens costs a multiply and an add for.
  double per_pair = query + value;
  if (o.kind == ModelKind::kFuxi) {
    per_token += 3 * 2 * width * static_cast<double>(o.feed_forward);
    per_pair += 2 * value;  // the position and the time map
  }
  Flops flops;
  for (const std::int64_t length : lengths) {
    const auto n = static_cast<double>(length);
    flops.causal += per_token * n + per_pair * n * (n + 1);
    flops.paper += per_token * n + 2 * per_pair * n * static_cast<double>(o.max_length);
  }
  flops.causal *= static_cast<double>(o.layers);
  flops.paper *= static_cast<double>(o.layers);
  return flops;
}

Flops step_flops(const ModelOptions& options, std::span<const std::int64_t> lengths) {
  const Flops forward = forward_flops(options, lengths);
  return {3 * forward.causal, 3 * forward.paper};
}

}  // namespace turbogr::model
