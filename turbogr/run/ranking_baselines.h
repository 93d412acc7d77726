// Figures that need no model, beside a ranking model's: judging by counts alone
// (eval/counted_rates.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/holdout.h"
#include "turbogr/data/store.h"
#include "turbogr/run/config.h"
#include "turbogr/run/ranking_setup.h"
#include "turbogr/run/task.h"

namespace turbogr::run {

struct RankingBaseline {
  std::string name;  // "item" or "item+user+tab": what is counted
  Evaluation found;
};

// Of all targets of a split, whatever a rank's share; none where no task asks for signals.
std::vector<RankingBaseline> ranking_baselines(const Config& config, const RankingSetup& setup,
                                               const data::Store& store, data::Split split);

// A warning where a baseline has a better `metric` than the model; else empty.
std::string below_baselines(std::string_view split, const Evaluation& model,
                            const std::vector<RankingBaseline>& baselines,
                            const std::string& metric);

}  // namespace turbogr::run
