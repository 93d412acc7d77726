// The figures of a ranking evaluation under the names that logs and reports have for them: of one
// task auc, gauc, gauc_by_targets, ne and accuracy (a number: mse and mae); of several their means,
// and click.auc and so on; and the calibration of each task.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "turbogr/eval/evaluate_ranking.h"
#include "turbogr/run/ranking_setup.h"
#include "turbogr/run/task.h"

namespace turbogr::run {

// Of one task: figures of clicks, or of a number's errors.
struct TaskFigures {
  eval::ClickFigures clicks;
  std::optional<double> mean_squared, mean_absolute;  // of a task that predicts a number
  std::int64_t targets = 0;                           // of such a one
};

// Which figures there are; one whose classes or groups are missing has no value and is left out.
Evaluation ranking_figures(std::span<const TaskFigures> tasks, const RankingSetup& setup);
template <class T>
Evaluation ranking_figures(const eval::RankingEvaluator<T>& evaluator, const RankingSetup& setup);

// All names that an evaluation may give.
std::vector<std::string> ranking_figure_names(const RankingSetup& setup);
// One that compares the targets of a group, so that it wants groups of two or more.
bool is_group_figure(std::string_view name);

}  // namespace turbogr::run
