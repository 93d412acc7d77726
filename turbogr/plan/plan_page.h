// One page of a plan, readable without a network: how far it scales, where the time of a step goes,
// what memory holds, and the settings that were tried.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "turbogr/plan/scaling.h"
#include "turbogr/plan/search.h"
#include "turbogr/plan/simulator.h"

namespace turbogr::plan {

struct PlanFigures {
  std::string name;                                        // of the config
  std::string summary;                                     // cluster and data
  std::vector<std::pair<std::string, std::string>> tiles;  // label, value
  std::vector<ScalingCurve> curves;                        // may be empty
  std::string curve_note;
  std::vector<TracedStage> step;  // of one rank and step, from 0 s on
  double step_seconds = 0;
  std::vector<Choice> choices;  // best first
  double memory_gib = 0;        // of a device
  std::vector<std::string> sources;
};

// Of a trace over several steps: the stages between the ends of the last two, of one rank.
std::vector<TracedStage> last_step(const std::vector<TracedStage>& trace, int rank);

std::string plan_page(const PlanFigures& figures);

}  // namespace turbogr::plan
