// FLOPs of a ranking model's layers, in the three conventions that are quoted, never one without
// its name:
//   nominal  every sequence has the nominal number of events; backward attention is 2.5 times
//            forward
//   real     the same with each sequence's own events
//   causal   each sequence's own tokens, prefix too, the pairs of tokens that the mask allows, and
//            backward twice forward; the honest headline
// What makes tokens, the item tower, the head and lookups are not counted.
#pragma once

#include <cstdint>
#include <span>

#include "turbogr/model/ranking_options.h"

namespace turbogr::model {

struct RankingFlops {
  double nominal = 0;
  double real = 0;
  double causal = 0;
};

// Of sequences: events before the targets, and targets.
struct EventCounts {
  std::span<const std::int64_t> history, targets;
};

RankingFlops ranking_forward_flops(const RankingOptions& options, std::int64_t nominal_length,
                                   const EventCounts& sequences);
// Forward and backward.
RankingFlops ranking_step_flops(const RankingOptions& options, std::int64_t nominal_length,
                                const EventCounts& sequences);

}  // namespace turbogr::model
