// What would make a plan's best setting faster: other settings, other hardware, one thing at a
// time, simulated over the same batches.
#pragma once

#include <string>
#include <vector>

#include "turbogr/plan/search.h"

namespace turbogr::plan {

struct WhatIf {
  std::string text;     // "NICs twice as fast", "groups of 16, overlap, ..."
  std::string results;  // of training, beside those of the config: "same", "rounded", ...
  bool hardware = false;
  Simulation simulation;
  double gain = 0;  // tokens a second more, as a share
};

// Of everything that fits, most gain first.
std::vector<WhatIf> what_would_help(PlanSearch& search, const Choice& best);

}  // namespace turbogr::plan
