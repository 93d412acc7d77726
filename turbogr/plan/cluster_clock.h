// Where each rank of a simulated cluster stands in time, on its two lanes, and what the stages it
// has passed have taken.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/embedding/row_source.h"
#include "turbogr/plan/simulator.h"
#include "turbogr/train/stages.h"

namespace turbogr::plan {

class ClusterClock {
 public:
  ClusterClock(int ranks, std::span<const int> traced);

  std::span<double> times(embedding::Lane lane) { return times_[index(lane)]; }
  double mean(embedding::Lane lane) const;
  double latest(embedding::Lane lane) const;

  // Stages counted from here on; none before.
  void start_counting() { counting_ = true; }

  // Ranks move on by a stage: `begin` is where they stood, waiting [ranks] or empty of it for
  // others.
  void passed(const train::Stage& stage, embedding::Lane lane, std::span<const double> begin,
              std::span<const double> waiting);
  // The other lane may not begin before this one stands where it does; and the way back.
  void start_ahead();
  void join();

  std::vector<StageSeconds> stages(int steps) const;  // a step
  std::vector<TracedStage> take_trace() { return std::move(trace_); }

 private:
  static std::size_t index(embedding::Lane lane) { return lane == embedding::Lane::kThis ? 0 : 1; }

  std::array<std::vector<double>, 2> times_;
  std::vector<int> traced_;
  std::vector<TracedStage> trace_;
  bool counting_ = false;
  std::vector<StageSeconds> sums_;  // of all ranks
};

}  // namespace turbogr::plan
