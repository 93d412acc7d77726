// Names the rank that the others wait for, and what it spends its time on: from the times of the
// stages, gathered over ranks now and then. Nobody waits for the gather: what it has found is read
// when the next one starts.
//
//   Watchdog watchdog(world.split(0, world.rank(), "watchdog"));
//   if (const auto slow = watchdog.look({seconds, by_stage})) log::info("{}", text_of(*slow));
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turbogr/dist/communicator.h"
#include "turbogr/train/stages.h"

namespace turbogr::run {

// Of one rank since some moment; by_stage is of the lane that computes.
struct RankTimes {
  double seconds = 0;
  std::array<double, train::kStages.size()> by_stage = {};
};

struct SlowRank {
  int rank = 0;
  std::string stage;
  double seconds = 0;  // that the rank was busy, not waiting for others
  double median = 0;   // of all ranks
  double excess() const { return median > 0 ? seconds / median - 1 : 0; }
};

// The rank that is busy longest, and the stage in which it is furthest above the median rank.
SlowRank slowest_of(std::span<const RankTimes> ranks);
std::string text_of(const SlowRank& slow);

class Watchdog {
 public:
  static constexpr std::int64_t kEvery = 8;  // steps between looks
  static constexpr double kWorthSaying = 0.1;

  // Collective; used by nobody else.
  explicit Watchdog(std::unique_ptr<dist::Communicator> ranks);

  // All ranks alike: times since the beginning. What the look before this one has found.
  std::optional<SlowRank> look(const RankTimes& since_start);

 private:
  std::unique_ptr<dist::Communicator> ranks_;
  RankTimes last_, own_;
  std::vector<RankTimes> all_;
  std::vector<std::int64_t> bytes_;
  bool started_ = false;
  dist::Pending gather_;  // last: waited for while the memory is there
};

}  // namespace turbogr::run
