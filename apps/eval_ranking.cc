#include "apps/eval_ranking.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "turbogr/core/log.h"
#include "turbogr/core/output_file.h"
#include "turbogr/run/ranking_baselines.h"
#include "turbogr/run/trained_ranker.h"

namespace turbogr::apps {

void run_ranking_eval(const checkpoint::Checkpoint& checkpoint, const data::Store& store,
                      const RankingEvalOptions& options, dist::Communicator& world) {
  using run::TrainedRanker;
  const bool leads = world.rank() == 0;
  TrainedRanker model(checkpoint, store, options.threads, world, TrainedRanker::Use::kEvaluate);
  run::Config config = model.config();
  if (!options.group.empty()) config.eval.group = options.group;
  const eval::GroupBy groups = eval::group_by_from_name(config.eval.group);
  if (leads) {
    fmt::print("{} (step {}), store {}; GAUC by {}\n", checkpoint.folder(), checkpoint.step(),
               store.folder().string(), config.eval.group);
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const auto report = [&](std::string_view ranking, data::Split split,
                          const run::Evaluation& found) {
    if (!leads) return;
    fmt::print("{:<11} {:<10}  {}{}\n", name_of(split), ranking, found.of,
               run::figures_text(found.figures));
    nlohmann::ordered_json row = {{"split", name_of(split)},
                                  {"ranking", ranking},
                                  {"step", checkpoint.step()},
                                  {"group", config.eval.group}};
    for (const auto& [name, value] : found.figures) row[name] = value;
    for (const auto& [name, value] : found.counts) row[name] = value;
    if (!found.calibration.empty()) {
      row[run::kCalibration] = run::calibration_json(found.calibration);
    }
    rows.push_back(std::move(row));
  };
  for (const data::Split split : options.splits) {
    const run::Evaluation own = model.evaluate(split, groups);
    report("model", split, own);
    if (options.untrained) {
      TrainedRanker fresh(checkpoint, store, options.threads, world, TrainedRanker::Use::kEvaluate,
                          TrainedRanker::Weights::kFresh);
      report("untrained", split, fresh.evaluate(split, groups));
    }
    if (!options.baselines || !leads) continue;
    const std::vector<run::RankingBaseline> counted =
        run::ranking_baselines(config, model.setup(), store, split);
    for (const run::RankingBaseline& each : counted) {
      report("counts of " + each.name, split, each.found);
    }
    const std::string warning =
        run::below_baselines(name_of(split), own, counted, config.eval.metric);
    if (!warning.empty()) log::warn("{}", warning);
  }
  if (leads && !options.json.empty()) replace_file(options.json, rows.dump(1) + "\n");
}

}  // namespace turbogr::apps
