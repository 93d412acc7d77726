// Which settings of a config are fastest on a cluster, of those that fit the devices' memory: every
// group size, schedule and format of gradients together, simulated over the same batches; then what
// else could be changed about the best of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/plan/cluster.h"
#include "turbogr/plan/histories.h"
#include "turbogr/plan/memory.h"
#include "turbogr/plan/planned_features.h"
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
  bool spread = false;      // groups over machines (dist.spread)
  std::int64_t tokens = 0;  // of a rank and batch; 0: as the config has it
  // Where tables are, their format, how rows are dealt to ranks; empty: as the config has it.
  std::string memory, dtype, placement;

  std::vector<run::Override> overrides() const;  // for a command line
  std::string text() const;
};

// What else a choice changes: nothing; how rows or their gradients are rounded; rows that miss an
// update; or which tokens an update is made of.
enum class Semantics : std::uint8_t { kSame, kRounded, kLate, kOtherBatch };
Semantics semantics_of(const Settings& settings, const run::Config& config);
std::string_view text_of(Semantics semantics);

struct Choice {
  Settings settings;
  Semantics semantics = Semantics::kSame;
  RankMemory memory;
  bool fits = false;
  Simulation simulation;  // where it fits

  double token_seconds() const { return simulation.step_seconds / simulation.tokens; }
};

class PlanSearch {
 public:
  // `config`, `histories` and the context outlive it. `data`: whose histories they are, to make up
  // more of them for larger batches; without it those are tried where there are enough.
  PlanSearch(const Context& ctx, const run::Config& config, const ClusterOptions& cluster,
             const Histories& histories, int steps, std::string data = "");

  // Fastest first; those that do not fit last.
  std::vector<Choice> run();
  // One setting, by itself, and on other hardware or with other keys: for what would help.
  Choice try_settings(const Settings& settings) { return try_changed(settings, {}); }
  struct Change {
    std::function<void(run::Config&)> config;  // of keys that Settings has not
    std::function<void(SimulationSetup&)> hardware;
  };
  Choice try_changed(const Settings& settings, const Change& change);
  // Everything else that a search can set, one thing at a time.
  std::vector<Settings> neighbours(const Settings& settings);
  const run::Config& config() const { return config_; }
  const ClusterOptions& cluster() const { return cluster_; }
  // One setting with the stages of a rank kept.
  Simulation trace(const Settings& settings, int rank);

 private:
  // Batches of one size.
  struct Batches {
    std::unique_ptr<Histories> made_up;  // where the given ones are too few
    std::unique_ptr<PlannedFeatures> features;
    RunShape shape;
    DrawnSteps drawn;
    // By group, spread and placement.
    std::map<std::tuple<int, bool, std::string>, std::vector<StepRoutes>> routes;
  };
  Batches make_batches(const run::Config& config, const Histories& histories, int steps) const;
  bool has_batches(std::int64_t tokens);
  Batches& batches_of(std::int64_t tokens) { return batches_.at(tokens); }
  const std::vector<StepRoutes>& routes_of(const Settings& settings,
                                           const dist::Topology& topology);
  std::vector<int> group_sizes() const;
  std::vector<std::string> schedules() const;
  // Whether training would take it.
  bool goes_together(const Settings& settings) const;
  Choice try_to_fit(const Settings& settings);
  std::vector<Settings> changes_to(const Settings& settings, bool batches) const;
  std::vector<Settings> spread_groups(const Settings& settings) const;

  const Context& ctx_;
  const run::Config& config_;
  ClusterOptions cluster_;
  const Histories& histories_;
  std::string data_;
  std::vector<int> nodes_;
  std::map<std::int64_t, Batches> batches_;  // by the tokens of a rank; 0: the config's
};

}  // namespace turbogr::plan
