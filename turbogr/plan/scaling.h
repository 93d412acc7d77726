// How far a config scales: the same settings on more and more devices, groups of several sizes
// tried, the best of them kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/plan/cluster.h"
#include "turbogr/plan/search.h"
#include "turbogr/run/config.h"

namespace turbogr::plan {

struct ScalingOptions {
  std::vector<int> ranks = {1, 8, 32, 128, 512, 4096};
  std::int64_t tokens = 4096;  // of a rank, the most: thousands of ranks must be drawn
};

struct ScalingPoint {
  int ranks = 1;
  int group = 1;
  double linearity = 1;
  double step_seconds = 0;
  double exposed_sparse = 0, exposed_dense = 0;
};

struct ScalingCurve {
  std::string schedule;
  std::vector<ScalingPoint> points;  // without those that fit no device
};

// Throws unless every count of ranks is a multiple of a machine's devices, or below: what
// scaling_curves asks, known before a search.
void check_scaling(const ClusterOptions& cluster, const ScalingOptions& options);

// With the formats of `settings`, for its schedule and for semi_async. `cluster` says which devices
// and how many a machine has.
std::vector<ScalingCurve> scaling_curves(const Context& ctx, const run::Config& config,
                                         const ClusterOptions& cluster, const std::string& data,
                                         const Settings& settings, const ScalingOptions& options);

}  // namespace turbogr::plan
