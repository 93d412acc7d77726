// Which settings of a config are fastest on a cluster: every combination of what may be chosen is
// simulated over the same batches, if it fits the devices' memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/plan/cluster.h"
#include "turbogr/plan/histories.h"
#include "turbogr/plan/memory.h"
#include "turbogr/plan/simulator.h"
#include "turbogr/plan/step_batches.h"
#include "turbogr/plan/step_routes.h"
#include "turbogr/run/config.h"

namespace turbogr::plan {

struct Settings {
  int group = 0;
  std::string schedule;
  std::string rows, gradients;  // formats on the wire
  bool recompute = false;

  std::vector<run::Override> overrides() const;  // for a command line
  std::string text() const;
};

// What else a choice changes: nothing; the last bits of sums; or rows that miss an update.
enum class Semantics : std::uint8_t { kSame, kRounded, kLate };
Semantics semantics_of(const Settings& settings, const run::Config& config);
std::string_view text_of(Semantics semantics);

struct Choice {
  Settings settings;
  Semantics semantics = Semantics::kSame;
  RankMemory memory;
  bool fits = false;
  Simulation simulation;  // where it fits
};

class PlanSearch {
 public:
  // `config`, `histories` and the context outlive it.
  PlanSearch(const Context& ctx, const run::Config& config, const ClusterOptions& cluster,
             const Histories& histories, int steps);

  // Fastest first; those that do not fit last.
  std::vector<Choice> run();
  // One setting, by itself, and with something else changed: for what would help.
  Choice try_settings(const Settings& settings);
  Choice try_changed(const Settings& settings, const std::vector<run::Override>& overrides,
                     double network_factor);
  // One setting with the stages of a rank kept.
  Simulation trace(const Settings& settings, int rank);

 private:
  const std::vector<StepRoutes>& routes_of(int group);
  std::vector<int> group_sizes() const;

  const Context& ctx_;
  const run::Config& config_;
  ClusterOptions cluster_;
  const Histories& histories_;
  std::vector<int> nodes_;
  DrawnSteps drawn_;
  std::int64_t capacity_ = 0;
  std::map<int, std::vector<StepRoutes>> routes_;
};

}  // namespace turbogr::plan
