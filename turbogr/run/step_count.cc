#include "turbogr/run/step_count.h"

#include <algorithm>
#include <cmath>

namespace turbogr::run {

std::int64_t StepCount::limited_to(std::int64_t steps) const {
  return steps == 0 || in_all == 0 ? std::max(steps, in_all) : std::min(steps, in_all);
}

StepCount count_steps(std::span<const data::Window> windows, const data::PlanOptions& plan,
                      std::int64_t accumulate, std::int64_t epochs, std::int64_t walked) {
  data::BatchPlanner planner(windows, plan);
  const auto an_epoch = std::max<std::int64_t>(1, static_cast<std::int64_t>(windows.size()));
  const std::int64_t most =
      std::clamp<std::int64_t>(walked / an_epoch, 1, plan.shuffle ? walked : 1);
  StepCount count;
  std::int64_t epoch = 0;
  do {
    std::int64_t batches = 0;
    while (planner.next_step()) ++batches;
    const std::int64_t steps = (batches + accumulate - 1) / accumulate;
    if (epoch == 0) count.an_epoch = steps;
    if (epochs > 0) count.in_all += steps;
    ++epoch;
  } while (epoch < std::min(epochs, most));
  if (epochs > epoch) {
    const double rest = static_cast<double>(count.in_all) * static_cast<double>(epochs - epoch) /
                        static_cast<double>(epoch);
    // Every 64-bit number of epochs is a config; a sum past the range means "very long" all the
    // same.
    constexpr double kMost = 0x1p61;
    count.in_all += std::llround(std::min(rest, kMost));
  }
  return count;
}

}  // namespace turbogr::run
