// How well probabilities order and match what people did, for one task: AUC over all targets, AUC
// inside groups, normalised entropy, accuracy, calibration; and the errors of a task that predicts
// a number.
//
//   ClickMetrics metrics;
//   metrics.add({.probability = 0.3, .positive = true, .group = request});
//   metrics.add_up(ranks);                       // the targets of all ranks
//   const ClickFigures figures = metrics.figures();
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "turbogr/dist/communicator.h"

namespace turbogr::eval {

// A target that was scored. One of weight 0 counts nowhere.
struct ScoredTarget {
  double probability = 0;
  bool positive = false;
  double weight = 1;
  std::int64_t group = 0;  // its request or its user
};

// Whose targets GAUC compares with each other: a user's, or a request's, which are those of one
// sample.
enum class GroupBy : std::uint8_t { kUser, kRequest };
GroupBy group_by_from_name(std::string_view name);  // "user" or "request"; throws on another

// Targets whose probabilities lie next to each other: what was said of them, and what came true.
struct CalibrationBin {
  std::int64_t targets = 0;
  double predicted = 0;  // the mean of their probabilities
  double observed = 0;   // the share of positives, both weighted as the targets are
};
inline constexpr std::int64_t kCalibrationBins = 10;

// A figure that does not exist has no value; a made-up 0.5 would look like a measurement.
struct ClickFigures {
  std::int64_t targets = 0;
  // The share of pairs (positive, negative) in the right order, a tie counting one half, a pair
  // weighing the product of its weights. Needs both classes.
  std::optional<double> auc;
  // The mean of the AUC inside each group that has both classes: every group weighing the same, or
  // as much as it has targets.
  std::optional<double> gauc, gauc_by_targets;
  std::int64_t groups = 0;  // that have both classes
  // Cross entropy over that of always saying the share of positives; below 1 is better than that.
  std::optional<double> normalized_entropy;
  std::optional<double> accuracy;  // of `probability >= 0.5`
  // From low to high probabilities, in bins of equal counts but that equal probabilities share a
  // bin: so there are kCalibrationBins of them, or fewer.
  std::vector<CalibrationBin> calibration;
};

// Keeps every target, so figures are exact and the same bits in whatever order targets came.
class ClickMetrics {
 public:
  void add(const ScoredTarget& target);
  // Becomes the targets of all ranks. Groups may have targets on several of them.
  void add_up(dist::Communicator& ranks);
  void clear() { targets_.clear(); }
  ClickFigures figures() const;

 private:
  std::vector<ScoredTarget> targets_;
};

// Weighted means of the squared and the absolute error.
class ErrorMetrics {
 public:
  void add(double predicted, double wanted, double weight = 1);
  void add_up(dist::Communicator& ranks);            // becomes the sums over all of them
  std::int64_t targets() const { return targets_; }  // weighted or not
  std::optional<double> mean_squared() const;
  std::optional<double> mean_absolute() const;

 private:
  double squares_ = 0;
  double absolutes_ = 0;
  double weights_ = 0;
  std::int64_t targets_ = 0;
};

}  // namespace turbogr::eval
