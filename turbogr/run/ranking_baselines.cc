#include "turbogr/run/ranking_baselines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "turbogr/eval/counted_rates.h"
#include "turbogr/run/ranking_figures.h"
#include "turbogr/run/sample_setup.h"

namespace turbogr::run {

std::vector<RankingBaseline> ranking_baselines(const Config& config, const RankingSetup& setup,
                                               const data::Store& store, data::Split split) {
  const auto& numbers = setup.regression;
  if (std::find(numbers.begin(), numbers.end(), 0) == numbers.end()) return {};
  data::SampleOptions options = sample_options(config, split);
  options.max_users = config.eval.max_users;
  const data::Samples samples = data::make_samples(store, options);
  const eval::CountedRates rates(
      store, data::make_samples(store, sample_options(config, data::Split::kTrain)), setup.layout);
  const eval::GroupBy groups = eval::group_by_from_name(config.eval.group);
  std::vector<RankingBaseline> baselines;
  for (const eval::CountedBy by : {eval::CountedBy::kItem, eval::CountedBy::kAll}) {
    std::vector<TaskFigures> figures(setup.layout.tasks.size());
    for (std::size_t k = 0; k < figures.size(); ++k) {
      if (numbers[k] == 0) figures[k].clicks = rates.judge(samples, k, by, groups).figures();
    }
    const std::string name =
        by == eval::CountedBy::kItem ? "item" : fmt::format("{}", fmt::join(rates.names(), "+"));
    baselines.push_back({name, ranking_figures(figures, setup)});
  }
  return baselines;
}

std::string below_baselines(std::string_view split, const Evaluation& model,
                            const std::vector<RankingBaseline>& baselines,
                            const std::string& metric) {
  const std::optional<double> own = score_of(model, metric);
  if (!own) return "";
  for (const RankingBaseline& baseline : baselines) {
    const std::optional<double> other = score_of(baseline.found, metric);
    if (!other || *own >= *other) continue;
    return fmt::format(
        "the model judges worse than counts of {} on the {} split ({} {:.4f} against {:.4f}): it "
        "has learnt too little, or too much of single events. Train for longer or shorter "
        "(train.epochs, train.patience), or lower embedding.lr",
        baseline.name, split, metric, std::abs(*own), std::abs(*other));
  }
  return "";
}

}  // namespace turbogr::run
