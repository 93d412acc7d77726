// From a config and a cluster to what a simulation takes.
#pragma once

#include <cstdint>
#include <string>

#include "turbogr/plan/planned_features.h"
#include "turbogr/plan/simulator.h"
#include "turbogr/run/config.h"

namespace turbogr::plan {

inline constexpr int kMostRanks = 1 << 16;

struct ClusterOptions {
  int nodes = 1;  // machines
  int gpus = 8;   // of each
  std::string gpu = "h200";
  std::string network = "ib400x8";
  int sharing = 1;        // ranks a device has; several are staged through their hosts
  bool two_hops = false;  // rows and ids between machines go by way of a neighbour (simulator.h)

  int ranks_of_node() const { return gpus * sharing; }
  int ranks() const { return nodes * ranks_of_node(); }
};

// Dense weights of the model, position embedding included: those whose gradients are summed.
std::int64_t dense_parameters(const model::ModelOptions& model);

// Throws on clusters too large and tasks that cannot be planned: before anything is drawn.
void check_plannable(const run::Config& config, const ClusterOptions& cluster);

// `features`: of the config; null where it has none.
SimulationSetup setup_of(const run::Config& config, const ClusterOptions& cluster,
                         const PlannedFeatures* features = nullptr);

}  // namespace turbogr::plan
