// From a Config to the samples of the ranking task: which events are targets, what stands before
// them, how many make a step.
#pragma once

#include <cstdint>

#include "turbogr/data/holdout.h"
#include "turbogr/data/samples/sample_loader.h"
#include "turbogr/run/config.h"
#include "turbogr/run/ranking_setup.h"
#include "turbogr/run/run_options.h"

namespace turbogr::run {

data::SampleOptions sample_options(const Config& config, data::Split split);
// Of a rank's share of every training step.
data::SampleLoaderOptions sample_loader_options(const Config& config, const RankingSetup& setup,
                                                const Share& share = {});
// Of a held-out split, in batches of so many samples a rank.
data::SampleLoaderOptions sample_eval_options(const Config& config, const RankingSetup& setup,
                                              data::Split split, std::int64_t samples,
                                              const Share& share = {});

}  // namespace turbogr::run
