#include "turbogr/run/ranking_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "turbogr/core/progress.h"

namespace turbogr::run {
namespace {

constexpr const char* kClickFigures[] = {"auc", "gauc", "gauc_by_targets", "ne", "accuracy"};
constexpr const char* kErrorFigures[] = {"mse", "mae"};

using Figures = std::vector<std::pair<std::string, std::optional<double>>>;

Figures figures_of(const TaskFigures& task, bool number) {
  if (number) return {{"mse", task.mean_squared}, {"mae", task.mean_absolute}};
  const eval::ClickFigures& clicks = task.clicks;
  return {{"auc", clicks.auc},
          {"gauc", clicks.gauc},
          {"gauc_by_targets", clicks.gauc_by_targets},
          // Of one class alone it divides by nearly nothing.
          {"ne", clicks.auc ? clicks.normalized_entropy : std::nullopt},
          {"accuracy", clicks.accuracy}};
}

}  // namespace

Evaluation ranking_figures(std::span<const TaskFigures> given, const RankingSetup& setup) {
  const std::vector<data::SampleTask>& tasks = setup.layout.tasks;
  Evaluation evaluation;
  std::map<std::string, std::pair<double, int>> sums;
  std::vector<std::pair<std::string, double>> own;
  std::int64_t targets = 0;
  for (std::size_t k = 0; k < tasks.size(); ++k) {
    for (const auto& [name, value] : figures_of(given[k], setup.regression[k] != 0)) {
      if (!value) continue;
      sums[name].first += *value;
      ++sums[name].second;
      if (tasks.size() > 1) own.emplace_back(tasks[k].name + "." + name, *value);
    }
    targets = std::max(targets, given[k].targets);
    if (setup.regression[k] != 0) continue;
    const eval::ClickFigures& clicks = given[k].clicks;
    targets = std::max(targets, clicks.targets);
    evaluation.counts.emplace_back((tasks.size() > 1 ? tasks[k].name + "." : "") + "groups",
                                   static_cast<double>(clicks.groups));
    if (clicks.targets > 0) evaluation.calibration.push_back({tasks[k].name, clicks.calibration});
  }
  const auto add_mean = [&](const char* name) {
    const auto found = sums.find(name);
    if (found == sums.end()) return;
    evaluation.figures.emplace_back(name, found->second.first / found->second.second);
  };
  for (const char* name : kClickFigures) add_mean(name);
  for (const char* name : kErrorFigures) add_mean(name);
  evaluation.figures.insert(evaluation.figures.end(), own.begin(), own.end());
  evaluation.counts.emplace_back("targets", static_cast<double>(targets));
  evaluation.of = fmt::format("{} targets", grouped_text(targets));
  return evaluation;
}

template <class T>
Evaluation ranking_figures(const eval::RankingEvaluator<T>& evaluator, const RankingSetup& setup) {
  std::vector<TaskFigures> tasks(setup.layout.tasks.size());
  for (std::size_t k = 0; k < tasks.size(); ++k) {
    if (setup.regression[k] != 0) {
      tasks[k].mean_squared = evaluator.errors(k).mean_squared();
      tasks[k].mean_absolute = evaluator.errors(k).mean_absolute();
      tasks[k].targets = evaluator.errors(k).targets();
    } else {
      tasks[k].clicks = evaluator.clicks(k).figures();
    }
  }
  return ranking_figures(tasks, setup);
}

std::vector<std::string> ranking_figure_names(const RankingSetup& setup) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  const std::vector<data::SampleTask>& tasks = setup.layout.tasks;
  for (std::size_t k = 0; k < tasks.size(); ++k) {
    const auto add_both = [&](const char* name) {
      add(name);
      if (tasks.size() > 1) add(tasks[k].name + "." + name);
    };
    if (setup.regression[k] != 0) {
      for (const char* name : kErrorFigures) add_both(name);
    } else {
      for (const char* name : kClickFigures) add_both(name);
    }
  }
  return names;
}

bool is_group_figure(std::string_view name) {
  const std::string_view own = name.substr(name.rfind('.') + 1);  // of one task
  return own == "gauc" || own == "gauc_by_targets";
}

template Evaluation ranking_figures(const eval::RankingEvaluator<float>&, const RankingSetup&);
template Evaluation ranking_figures(const eval::RankingEvaluator<bf16>&, const RankingSetup&);

}  // namespace turbogr::run
