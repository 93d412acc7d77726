#include "turbogr/plan/cluster_clock.h"

#include <algorithm>
#include <numeric>
#include <string_view>

namespace turbogr::plan {

using embedding::Lane;

ClusterClock::ClusterClock(int ranks, std::span<const int> traced)
    : times_{std::vector<double>(static_cast<std::size_t>(ranks)),
             std::vector<double>(static_cast<std::size_t>(ranks))},
      traced_(traced.begin(), traced.end()) {
  for (const train::Stage& stage : train::kStages) sums_.push_back({stage.name, stage.kind});
}

double ClusterClock::mean(Lane lane) const {
  const std::vector<double>& times = times_[index(lane)];
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

double ClusterClock::latest(Lane lane) const {
  const std::vector<double>& times = times_[index(lane)];
  return *std::max_element(times.begin(), times.end());
}

void ClusterClock::passed(const train::Stage& stage, Lane lane, std::span<const double> begin,
                          std::span<const double> waiting) {
  const std::vector<double>& end = times_[index(lane)];
  for (const int rank : traced_) {
    const auto r = static_cast<std::size_t>(rank);
    if (end[r] <= begin[r]) continue;
    trace_.push_back({rank, lane == Lane::kThis ? train::kComputeLane : train::kAheadLane,
                      stage.name, begin[r], end[r]});
  }
  if (!counting_) return;
  const auto sum = std::find_if(sums_.begin(), sums_.end(), [&](const StageSeconds& each) {
    return each.name == std::string_view(stage.name);
  });
  double seconds = 0;
  for (std::size_t r = 0; r < end.size(); ++r) seconds += end[r] - begin[r];
  (lane == Lane::kThis ? sum->exposed : sum->hidden) += seconds;
  if (lane == Lane::kThis) {
    sum->waiting += std::accumulate(waiting.begin(), waiting.end(), 0.0);
  }
}

void ClusterClock::start_ahead() {
  for (std::size_t r = 0; r < times_[0].size(); ++r) {
    times_[1][r] = std::max(times_[1][r], times_[0][r]);
  }
}

void ClusterClock::join() {
  const std::vector<double> begin = times_[0];
  for (std::size_t r = 0; r < times_[0].size(); ++r) {
    times_[0][r] = std::max(times_[0][r], times_[1][r]);
  }
  passed(train::stages::kJoin, Lane::kThis, begin, {});
}

std::vector<StageSeconds> ClusterClock::stages(int steps) const {
  std::vector<StageSeconds> means;
  const double count = static_cast<double>(times_[0].size()) * steps;
  for (StageSeconds each : sums_) {
    if (each.exposed == 0 && each.hidden == 0) continue;
    each.exposed /= count;
    each.waiting /= count;
    each.hidden /= count;
    means.push_back(each);
  }
  return means;
}

}  // namespace turbogr::plan
