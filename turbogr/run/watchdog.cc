#include "turbogr/run/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace turbogr::run {
namespace {

constexpr double kWorthSaying = 0.1;      // of the median rank's busy time
constexpr double kWorthSayingLate = 0.2;  // of the time
constexpr double kFarLonger = 2;

bool waits_for_others(const train::Stage& stage) {
  return stage.kind == train::StageKind::kSparse || stage.kind == train::StageKind::kDense;
}

// Seconds of each stage that is the rank's own, and last what is in none of them.
std::vector<double> own_stages(const RankTimes& times) {
  std::vector<double> own(train::kStages.size() + 1, 0);
  own.back() = times.seconds;
  for (std::size_t i = 0; i < train::kStages.size(); ++i) {
    own.back() -= times.by_stage[i];
    if (!waits_for_others(train::kStages[i])) own[i] = times.by_stage[i];
  }
  return own;
}

double busy_seconds(const RankTimes& times) {
  double busy = times.seconds;
  for (std::size_t i = 0; i < train::kStages.size(); ++i) {
    if (waits_for_others(train::kStages[i])) busy -= times.by_stage[i];
  }
  return busy;
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

SlowRank slowest_of(std::span<const RankTimes> ranks) {
  std::vector<double> busy;
  std::vector<std::vector<double>> stages;
  for (const RankTimes& times : ranks) {
    busy.push_back(busy_seconds(times));
    stages.push_back(own_stages(times));
  }
  const auto slow =
      static_cast<std::size_t>(std::max_element(busy.begin(), busy.end()) - busy.begin());
  SlowRank found = {
      .rank = static_cast<int>(slow), .seconds = busy[slow], .median = median_of(busy)};
  double furthest = -1;
  for (std::size_t stage = 0; stage <= train::kStages.size(); ++stage) {
    std::vector<double> of_all;
    of_all.reserve(stages.size());
    for (const std::vector<double>& each : stages) of_all.push_back(each[stage]);
    const double above = stages[slow][stage] - median_of(of_all);
    if (above <= furthest) continue;
    furthest = above;
    found.stage = stage < train::kStages.size() ? train::kStages[stage].name
                                                : "reading, or nothing of training";
  }
  return found;
}

int latest_of(std::span<const double> waited, int own) {
  if (waited.size() < 3) return -1;  // one other rank: nothing to compare it with
  const auto latest =
      static_cast<int>(std::max_element(waited.begin(), waited.end()) - waited.begin());
  if (latest == own) return -1;
  const double most = waited[static_cast<std::size_t>(latest)];
  const double others = std::accumulate(waited.begin(), waited.end(), 0.0) - most;
  const double mean = others / static_cast<double>(waited.size() - 2);
  return most > 0 && most >= kFarLonger * mean ? latest : -1;
}

namespace {

int peer_of(std::span<const RankTimes> ranks, int rank) {
  return ranks[static_cast<std::size_t>(rank)].late_peer;
}

// Where a rank's waiting leads, from who it waits for to who that one waits for: to a rank that
// waits for nobody, or to two that wait for each other, of which the lower one is meant. -1: to
// neither.
int end_of_waiting(std::span<const RankTimes> ranks, int from) {
  int at = from;
  for (std::size_t steps = 0; steps < ranks.size(); ++steps) {
    const int next = peer_of(ranks, at);
    if (next < 0) return at == from ? -1 : at;
    if (peer_of(ranks, next) == at) return std::min(at, next);
    at = next;
  }
  return -1;
}

}  // namespace

std::optional<LateRank> latest_of(std::span<const RankTimes> ranks) {
  std::vector<int> votes(ranks.size());
  double share = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].seconds > 0) share += ranks[r].late_seconds / ranks[r].seconds;
    const int end = end_of_waiting(ranks, static_cast<int>(r));
    if (end >= 0) ++votes[static_cast<std::size_t>(end)];
  }
  const auto most = std::max_element(votes.begin(), votes.end());
  if (2 * *most < std::ssize(ranks)) return std::nullopt;
  LateRank found = {.rank = static_cast<int>(most - votes.begin()),
                    .share = share / static_cast<double>(ranks.size())};
  found.other = peer_of(ranks, found.rank);
  if (found.other < 0) return found;
  // Of two, the one that more of the others wait for themselves.
  int others = 0;
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    if (r == found.rank || r == found.other) continue;
    if (peer_of(ranks, r) == found.rank) --others;
    if (peer_of(ranks, r) == found.other) ++others;
  }
  if (others > 0) std::swap(found.rank, found.other);
  if (others != 0) found.other = -1;
  return found;
}

std::optional<Suspect> suspect_of(std::span<const RankTimes> ranks) {
  const SlowRank slow = slowest_of(ranks);
  if (slow.excess() >= kWorthSaying) {
    return Suspect{slow.rank,
                   fmt::format("rank {} is the slowest, {:.0f} % busier than the median rank; "
                               "most in: {}",
                               slow.rank, 100 * slow.excess(), slow.stage)};
  }
  const std::optional<LateRank> late = latest_of(ranks);
  if (!late || late->share < kWorthSayingLate) return std::nullopt;
  const std::string whose = late->other < 0
                                ? fmt::format("of rank {}", late->rank)
                                : fmt::format("between ranks {} and {}", late->rank, late->other);
  return Suspect{late->rank,
                 fmt::format("messages {} are late, {:.0f} % of the time is waiting for "
                             "them, and nobody is busier than others: look at the link",
                             whose, 100 * late->share)};
}

Watchdog::Watchdog(std::unique_ptr<dist::Communicator> ranks)
    : ranks_(std::move(ranks)),
      all_(static_cast<std::size_t>(ranks_->size())),
      waited_(all_.size()),
      waited_before_(all_.size()),
      bytes_(all_.size(), static_cast<std::int64_t>(sizeof(RankTimes))) {}

std::optional<Suspect> Watchdog::look(const RankTimes& since_start) {
  std::optional<Suspect> found;
  if (started_) {
    gather_.wait();  // started many steps ago
    found = suspect_of(all_);
  }
  own_ = since_start;
  own_.seconds -= last_.seconds;
  for (std::size_t i = 0; i < own_.by_stage.size(); ++i) own_.by_stage[i] -= last_.by_stage[i];
  last_ = since_start;
  // In waited_before_ what was waited since the last look, then all until now.
  std::fill(waited_.begin(), waited_.end(), 0.0);
  ranks_->add_seconds_waited(waited_);
  for (std::size_t r = 0; r < waited_.size(); ++r) {
    waited_before_[r] = waited_[r] - waited_before_[r];
  }
  own_.late_peer = latest_of(waited_before_, ranks_->rank());
  own_.late_seconds =
      own_.late_peer < 0 ? 0 : waited_before_[static_cast<std::size_t>(own_.late_peer)];
  std::swap(waited_, waited_before_);
  gather_ = ranks_->start_all_gather(&own_, {all_.data(), bytes_});
  started_ = true;
  return found;
}

bool Watchdog::is_news(const Suspect& found, std::int64_t step, std::int64_t again) {
  if (found.rank == named_rank_ && step - named_step_ < again) return false;
  named_rank_ = found.rank;
  named_step_ = step;
  return true;
}

}  // namespace turbogr::run
