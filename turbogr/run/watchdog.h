// Names the rank that the others wait for: what it spends its time on, or that only its messages
// are late. From the times of the stages and of waiting for each rank, gathered over ranks now and
// then. Nobody waits for the gather: what it has found is read when the next one starts.
//
//   Watchdog watchdog(world.split(0, world.rank(), "watchdog"));
//   if (const auto found = watchdog.look({seconds, by_stage})) log::info("{}", found->text);
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
  // The rank whose messages it has waited for far longer than for others', and how long.
  int late_peer = -1;
  double late_seconds = 0;
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

// Of the seconds waited for each rank's messages, who they were waited for most, if that is at
// least twice as long as for others on average; else -1.
int latest_of(std::span<const double> waited, int own);

struct LateRank {
  int rank = 0;
  int other = -1;    // only the messages between it and this one
  double share = 0;  // of the time that ranks on average waited for them
};

// The rank that most others' waiting leads to: rank a waits for b's messages, b for c's. A rank
// that is merely busy waits for nobody itself; of ranks with a slow link between them each waits
// for the other.
std::optional<LateRank> latest_of(std::span<const RankTimes> ranks);

struct Suspect {
  int rank = 0;
  std::string text;
};

// A rank that is a tenth busier than the median one, or else one whose messages are late.
std::optional<Suspect> suspect_of(std::span<const RankTimes> ranks);

class Watchdog {
 public:
  static constexpr std::int64_t kEvery = 8;  // steps between looks

  // Collective, of all ranks of the world in their order; used by nobody else.
  explicit Watchdog(std::unique_ptr<dist::Communicator> ranks);

  // All ranks alike: times since the beginning. What the look before this one has found, if that is
  // worth saying.
  std::optional<Suspect> look(const RankTimes& since_start);
  // Another rank than was named last, or the same `again` steps later; remembers it then.
  bool is_news(const Suspect& found, std::int64_t step, std::int64_t again);

 private:
  std::unique_ptr<dist::Communicator> ranks_;
  RankTimes last_, own_;
  std::vector<RankTimes> all_;
  std::vector<double> waited_, waited_before_;  // for each rank, since the beginning
  std::vector<std::int64_t> bytes_;
  bool started_ = false;
  int named_rank_ = -1;  // last
  std::int64_t named_step_ = 0;
  dist::Pending gather_;  // last: waited for while the memory is there
};

}  // namespace turbogr::run
