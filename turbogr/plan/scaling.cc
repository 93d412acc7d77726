#include "turbogr/plan/scaling.h"

#include <algorithm>
#include <optional>

#include "turbogr/core/check.h"

namespace turbogr::plan {
namespace {

constexpr int kSteps = 1;
constexpr int kDrawnSteps = kSteps + 3;
// Every exchange in a group is a message to each of its ranks: larger ones are not worth the time.
constexpr int kLargestGroup = 512;

ClusterOptions cluster_of(const ClusterOptions& like, int ranks) {
  ClusterOptions cluster = like;
  cluster.sharing = 1;
  cluster.gpus = std::min(like.gpus, ranks);
  TGR_CHECK(ranks >= 1 && ranks <= kMostRanks && ranks % cluster.gpus == 0, "--curve-ranks ", ranks,
            "; wanted: a multiple of the ", like.gpus,
            " devices of a machine (--gpus), or fewer, up to ", kMostRanks);
  cluster.nodes = ranks / cluster.gpus;
  return cluster;
}

// The ranks of a machine, eight times as many, and so on; all where they are few.
std::vector<int> groups_of(const ClusterOptions& cluster) {
  constexpr int kTimes = 8;
  std::vector<int> sizes;
  for (int size = cluster.gpus; size <= std::min(kLargestGroup, cluster.ranks()); size *= kTimes) {
    // Replicas that tell everybody everything are out of the race where they are many.
    const bool too_many = cluster.ranks() / size > kLargestGroup / kTimes;
    if (cluster.ranks() % size == 0 && !too_many) sizes.push_back(size);
  }
  const bool has_all = !sizes.empty() && sizes.back() == cluster.ranks();
  if (!has_all && cluster.ranks() <= kLargestGroup) sizes.push_back(cluster.ranks());
  return sizes;
}

ScalingPoint point_of(const Choice& choice, int ranks) {
  const Simulation& s = choice.simulation;
  return {.ranks = ranks,
          .group = choice.settings.group,
          .linearity = s.linearity(),
          .step_seconds = s.step_seconds,
          .exposed_sparse = s.share(train::StageKind::kSparse),
          .exposed_dense = s.share(train::StageKind::kDense)};
}

}  // namespace

void check_scaling(const ClusterOptions& cluster, const ScalingOptions& options) {
  TGR_CHECK(!options.ranks.empty(), "a curve over no ranks; give at least one count");
  for (const int ranks : options.ranks) cluster_of(cluster, ranks);
}

std::vector<ScalingCurve> scaling_curves(const Context& ctx, const run::Config& config,
                                         const ClusterOptions& cluster, const std::string& data,
                                         const Settings& settings, const ScalingOptions& options) {
  check_scaling(cluster, options);
  run::Config smaller = config;
  if (smaller.train.tokens > options.tokens) smaller.train.tokens = options.tokens;
  const auto a_rank = static_cast<double>(std::max(smaller.train.tokens, smaller.data.max_length));
  const int most = *std::max_element(options.ranks.begin(), options.ranks.end());
  const auto histories = open_histories(
      data, {.config = smaller, .least_tokens = (kDrawnSteps + 1.0) * most * a_rank});
  std::vector<ScalingCurve> curves = {{settings.schedule, {}}};
  if (settings.schedule != "semi_async") curves.push_back({"semi_async", {}});
  for (const int ranks : options.ranks) {
    const ClusterOptions sized = cluster_of(cluster, ranks);
    PlanSearch search(ctx, smaller, sized, *histories, kSteps);
    for (ScalingCurve& curve : curves) {
      std::optional<ScalingPoint> best;
      for (const int group : groups_of(sized)) {
        Settings own = settings;
        own.group = group;
        own.schedule = ranks == 1 ? "serial" : curve.schedule;
        const Choice choice = search.try_settings(own);
        if (!choice.fits) continue;
        const ScalingPoint point = point_of(choice, ranks);
        if (!best || point.step_seconds < best->step_seconds) best = point;
      }
      if (best) curve.points.push_back(*best);
    }
  }
  return curves;
}

}  // namespace turbogr::plan
