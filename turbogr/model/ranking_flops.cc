#include "turbogr/model/ranking_flops.h"

namespace turbogr::model {
namespace {

// Forward counts 1; backward of products 2, of attention as the convention says.
RankingFlops flops_of(const RankingOptions& o, std::int64_t nominal_length,
                      const EventCounts& sequences, bool backward) {
  const ModelOptions layer = layer_options(o);
  const auto width = static_cast<double>(o.width), layers = static_cast<double>(o.layers);
  const bool fuxi = o.kind == ModelKind::kFuxi;
  const double feed_forward = fuxi ? 3 * static_cast<double>(o.feed_forward) : 0;
  const double per_token =
      2 * width *
      (static_cast<double>(layer.projection_width() + layer.mixed_width()) + feed_forward);
  // One map, or in FuXi three, over the values.
  const double per_pair = 2 * static_cast<double>(layer.query_width() + layer.gate_width());
  const double products = backward ? 3 : 1, attention = backward ? 3.5 : 1;
  // Of s events: every pair once.
  const auto counted = [&](double s) {
    return products * per_token * s + attention * per_pair * s * s / 2;
  };
  RankingFlops flops;
  for (std::size_t b = 0; b < sequences.history.size(); ++b) {
    const auto history = static_cast<double>(sequences.history[b]);
    const auto targets = static_cast<double>(sequences.targets[b]);
    const double before = static_cast<double>(o.prefix) + history;
    const double pairs = before * (before + 1) / 2 + targets * (before + 1) +
                         (o.full_prefix ? static_cast<double>(o.prefix) * (before - 1) -
                                              static_cast<double>(o.prefix * (o.prefix - 1)) / 2
                                        : 0);
    flops.nominal += layers * counted(static_cast<double>(nominal_length));
    flops.real += layers * counted(history + targets);
    flops.causal += layers * products * (per_token * (before + targets) + per_pair * pairs);
  }
  return flops;
}

}  // namespace

RankingFlops ranking_forward_flops(const RankingOptions& options, std::int64_t nominal_length,
                                   const EventCounts& sequences) {
  return flops_of(options, nominal_length, sequences, /*backward=*/false);
}

RankingFlops ranking_step_flops(const RankingOptions& options, std::int64_t nominal_length,
                                const EventCounts& sequences) {
  return flops_of(options, nominal_length, sequences, /*backward=*/true);
}

}  // namespace turbogr::model
