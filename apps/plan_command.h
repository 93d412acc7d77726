// What `turbogr plan` was asked for, and what its two ways of working share.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "turbogr/plan/cluster.h"
#include "turbogr/plan/histories.h"
#include "turbogr/plan/planned_features.h"
#include "turbogr/plan/scaling.h"
#include "turbogr/plan/simulator.h"
#include "turbogr/run/config.h"

namespace turbogr::apps {

struct PlanCommand {
  plan::ClusterOptions cluster;
  int ranks = 0;
  std::string data;
  bool simulate = false;
  int steps = 3;
  std::vector<int> trace_ranks = {0};
  std::string trace, json, html;
  plan::ScalingOptions scaling;  // of the page
  plan::Disturbances disturbances;
  double price = 0;     // of a device and hour
  double mtbf = 0;      // hours between failures of a machine
  double disk_gbs = 2;  // of a machine
  bool explain = false;
};

void run_search(const run::Config& config, const PlanCommand& command);  // plan_search.cc

nlohmann::ordered_json json_of(const plan::Simulation& result, const plan::SimulationSetup& setup);
// What every link of a step carries, and the share of it that each is busy.
nlohmann::ordered_json links_json(const plan::Simulation& result);
void print_simulation(const plan::Simulation& result, const plan::SimulationSetup& setup);
void print_data(const plan::Histories& histories, const plan::PlannedFeatures& features);
// With users enough for so many steps.
std::unique_ptr<plan::Histories> histories_for(const run::Config& config,
                                               const PlanCommand& command, int steps);

}  // namespace turbogr::apps
