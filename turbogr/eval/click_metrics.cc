#include "turbogr/eval/click_metrics.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>

#include "turbogr/core/check.h"

namespace turbogr::eval {
namespace {

constexpr double kLeastProbability = 1e-12;

double kept_inside(double probability) {
  return std::clamp(probability, kLeastProbability, 1 - kLeastProbability);
}

// Of targets in the order of their probabilities.
std::optional<double> auc_of(std::span<const ScoredTarget> sorted) {
  double pairs_in_order = 0;
  double positives = 0;
  double negatives = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    const double probability = sorted[i].probability;
    double tied_positives = 0;
    double tied_negatives = 0;
    for (; i < sorted.size() && sorted[i].probability == probability; ++i) {
      (sorted[i].positive ? tied_positives : tied_negatives) += sorted[i].weight;
    }
    pairs_in_order += tied_positives * (negatives + tied_negatives / 2);
    positives += tied_positives;
    negatives += tied_negatives;
  }
  if (positives == 0 || negatives == 0) return std::nullopt;
  return pairs_in_order / (positives * negatives);
}

void set_entropy_and_accuracy(std::span<const ScoredTarget> targets, ClickFigures& figures) {
  double positives = 0;
  double negatives = 0;
  double entropy = 0;
  double right = 0;
  for (const ScoredTarget& target : targets) {
    const double p = kept_inside(target.probability);
    (target.positive ? positives : negatives) += target.weight;
    entropy -= target.weight * std::log2(target.positive ? p : 1 - p);
    if ((target.probability >= 0.5) == target.positive) right += target.weight;
  }
  const double total = positives + negatives;
  if (total == 0) return;
  const double rate = kept_inside(positives / total);
  figures.normalized_entropy =
      entropy / (-positives * std::log2(rate) - negatives * std::log2(1 - rate));
  figures.accuracy = right / total;
}

// Of targets in the order of their probabilities.
std::vector<CalibrationBin> calibration_of(std::span<const ScoredTarget> sorted) {
  std::vector<CalibrationBin> bins;
  std::vector<double> weights;
  std::int64_t last = -1;
  for (std::size_t i = 0; i < sorted.size();) {
    const std::int64_t own = static_cast<std::int64_t>(i) * kCalibrationBins / std::ssize(sorted);
    if (own != last) {
      bins.emplace_back();
      weights.push_back(0);
      last = own;
    }
    CalibrationBin& bin = bins.back();
    const double probability = sorted[i].probability;
    for (; i < sorted.size() && sorted[i].probability == probability; ++i) {
      const double weight = sorted[i].weight;
      ++bin.targets;
      weights.back() += weight;
      bin.predicted += weight * probability;
      bin.observed += sorted[i].positive ? weight : 0;
    }
  }
  for (std::size_t b = 0; b < bins.size(); ++b) {
    bins[b].predicted /= weights[b];
    bins[b].observed /= weights[b];
  }
  return bins;
}

void set_group_figures(std::span<const ScoredTarget> by_group, ClickFigures& figures) {
  double sum = 0;
  double sum_by_targets = 0;
  double targets = 0;
  for (std::size_t begin = 0; begin < by_group.size();) {
    std::size_t end = begin + 1;
    while (end < by_group.size() && by_group[end].group == by_group[begin].group) ++end;
    if (const std::optional<double> auc = auc_of(by_group.subspan(begin, end - begin))) {
      const auto count = static_cast<double>(end - begin);
      ++figures.groups;
      sum += *auc;
      sum_by_targets += *auc * count;
      targets += count;
    }
    begin = end;
  }
  if (figures.groups == 0) return;
  figures.gauc = sum / static_cast<double>(figures.groups);
  figures.gauc_by_targets = sum_by_targets / targets;
}

// All that tells targets apart comes in, so that sums do not depend on the order they came in.
bool before(const ScoredTarget& a, const ScoredTarget& b) {
  return std::tie(a.probability, a.positive, a.weight, a.group) <
         std::tie(b.probability, b.positive, b.weight, b.group);
}

bool before_by_group(const ScoredTarget& a, const ScoredTarget& b) {
  return a.group != b.group ? a.group < b.group : before(a, b);
}

}  // namespace

GroupBy group_by_from_name(std::string_view name) {
  TGR_CHECK(name == "user" || name == "request", "unknown groups '", name,
            "'; use user or request");
  return name == "user" ? GroupBy::kUser : GroupBy::kRequest;
}

void ClickMetrics::add(const ScoredTarget& target) {
  TGR_CHECK(target.probability >= 0 && target.probability <= 1, "a target's probability is ",
            target.probability, "; it must be 0 to 1: has the model diverged?");
  TGR_CHECK(target.weight >= 0 && std::isfinite(target.weight), "a target's weight is ",
            target.weight, "; it must be finite and at least 0");
  if (target.weight > 0) targets_.push_back(target);
}

void ClickMetrics::add_up(dist::Communicator& ranks) {
  const auto own = static_cast<std::int64_t>(targets_.size() * sizeof(ScoredTarget));
  const std::vector<std::int64_t> bytes = ranks.all_gather_value(own);
  std::int64_t total = 0;
  for (const std::int64_t each : bytes) total += each;
  std::vector<ScoredTarget> all(static_cast<std::size_t>(total) / sizeof(ScoredTarget));
  ranks.all_gather(targets_.data(), {all.data(), bytes});
  targets_ = std::move(all);
}

ClickFigures ClickMetrics::figures() const {
  ClickFigures figures;
  figures.targets = std::ssize(targets_);
  std::vector<ScoredTarget> sorted = targets_;
  std::sort(sorted.begin(), sorted.end(), before);
  figures.auc = auc_of(sorted);
  set_entropy_and_accuracy(sorted, figures);
  figures.calibration = calibration_of(sorted);
  std::sort(sorted.begin(), sorted.end(), before_by_group);
  set_group_figures(sorted, figures);
  return figures;
}

void ErrorMetrics::add(double predicted, double wanted, double weight) {
  const double error = predicted - wanted;
  squares_ += weight * error * error;
  absolutes_ += weight * std::abs(error);
  weights_ += weight;
  ++targets_;
}

void ErrorMetrics::add_up(dist::Communicator& ranks) {
  ranks.all_reduce({&squares_, 1}, dist::Reduce::kSum);
  ranks.all_reduce({&absolutes_, 1}, dist::Reduce::kSum);
  ranks.all_reduce({&weights_, 1}, dist::Reduce::kSum);
  ranks.all_reduce({&targets_, 1}, dist::Reduce::kSum);
}

std::optional<double> ErrorMetrics::mean_squared() const {
  return weights_ > 0 ? std::optional(squares_ / weights_) : std::nullopt;
}

std::optional<double> ErrorMetrics::mean_absolute() const {
  return weights_ > 0 ? std::optional(absolutes_ / weights_) : std::nullopt;
}

}  // namespace turbogr::eval
