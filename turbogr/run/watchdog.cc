#include "turbogr/run/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace turbogr::run {
namespace {

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

std::string text_of(const SlowRank& slow) {
  return fmt::format("rank {} is the slowest, {:.0f} % busier than the median rank; most in: {}",
                     slow.rank, 100 * slow.excess(), slow.stage);
}

Watchdog::Watchdog(std::unique_ptr<dist::Communicator> ranks)
    : ranks_(std::move(ranks)),
      all_(static_cast<std::size_t>(ranks_->size())),
      bytes_(all_.size(), static_cast<std::int64_t>(sizeof(RankTimes))) {}

std::optional<SlowRank> Watchdog::look(const RankTimes& since_start) {
  std::optional<SlowRank> found;
  if (started_) {
    gather_.wait();  // started many steps ago
    found = slowest_of(all_);
  }
  own_ = since_start;
  own_.seconds -= last_.seconds;
  for (std::size_t i = 0; i < own_.by_stage.size(); ++i) own_.by_stage[i] -= last_.by_stage[i];
  last_ = since_start;
  gather_ = ranks_->start_all_gather(&own_, {all_.data(), bytes_});
  started_ = true;
  return found;
}

}  // namespace turbogr::run
