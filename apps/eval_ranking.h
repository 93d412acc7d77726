// `turbogr eval` of a ranking model: its judgements of held-out targets.
#pragma once

#include <string>
#include <vector>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/data/holdout.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/communicator.h"

namespace turbogr::apps {

struct RankingEvalOptions {
  std::vector<data::Split> splits;
  int threads = 0;
  bool untrained = false;
  bool baselines = true;
  std::string group;  // user or request; empty: as the run has it
  std::string json;
};

// Collective.
void run_ranking_eval(const checkpoint::Checkpoint& checkpoint, const data::Store& store,
                      const RankingEvalOptions& options, dist::Communicator& world);

}  // namespace turbogr::apps
