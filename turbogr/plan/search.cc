#include "turbogr/plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "turbogr/data/batching.h"
#include "turbogr/run/run_options.h"

namespace turbogr::plan {
namespace {

// Of a device's memory: the rest is the driver's and the libraries'.
constexpr double kUsableMemory = 0.95;
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

run::Config with_settings(const run::Config& config, const Settings& settings) {
  run::Config changed = config;
  changed.dist.group = settings.group;
  changed.train.schedule = settings.schedule;
  changed.dist.rows = settings.rows;
  changed.dist.gradients = settings.gradients;
  changed.train.recompute = settings.recompute;
  return changed;
}

}  // namespace

std::vector<run::Override> Settings::overrides() const {
  return {{"dist.group", std::to_string(group)},
          {"train.schedule", schedule},
          {"dist.rows", rows},
          {"dist.gradients", gradients},
          {"train.recompute", recompute ? "true" : "false"}};
}

std::string Settings::text() const {
  return fmt::format("groups of {}, {}, rows {}, gradients {}{}", group, schedule, rows, gradients,
                     recompute ? ", recompute" : "");
}

Semantics semantics_of(const Settings& settings, const run::Config& config) {
  if (settings.schedule == "semi_async") return Semantics::kLate;
  const bool rows_rounded = settings.rows != "f32" && config.train.dtype != "bf16";
  return rows_rounded || settings.gradients != "f32" ? Semantics::kRounded : Semantics::kSame;
}

std::string_view text_of(Semantics semantics) {
  switch (semantics) {
    case Semantics::kSame:
      return "same";
    case Semantics::kRounded:
      return "rounded";
    case Semantics::kLate:
      break;
  }
  return "late rows";
}

PlanSearch::PlanSearch(const Context& ctx, const run::Config& config, const ClusterOptions& cluster,
                       const Histories& histories, int steps)
    : ctx_(ctx), config_(config), cluster_(cluster), histories_(histories) {
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    nodes_.push_back(rank / cluster.ranks_of_node());
  }
  drawn_ = draw_steps(ctx, config, histories, cluster.ranks(), steps + 3);
  capacity_ = data::BatchPlanner(histories.windows(), run::plan_options(config, 0, cluster.ranks()))
                  .max_batch_tokens();
}

const std::vector<StepRoutes>& PlanSearch::routes_of(int group) {
  const auto known = routes_.find(group);
  if (known != routes_.end()) return known->second;
  const LayoutOptions layout = {.topology = dist::make_topology(nodes_, group),
                                .placement = embedding::placement_from_name(config_.dist.placement),
                                .rows = histories_.num_items()};
  return routes_.emplace(group, route_steps(ctx_, layout, drawn_.steps)).first->second;
}

// The ranks of a machine, twice as many, and so on up to all.
std::vector<int> PlanSearch::group_sizes() const {
  std::vector<int> sizes;
  for (int nodes = 1; nodes <= cluster_.nodes; nodes *= 2) {
    if (cluster_.nodes % nodes == 0) sizes.push_back(nodes * cluster_.ranks_of_node());
  }
  if (sizes.back() != cluster_.ranks()) sizes.push_back(cluster_.ranks());
  return sizes;
}

Choice PlanSearch::try_settings(const Settings& settings) { return try_changed(settings, {}, 1); }

Choice PlanSearch::try_changed(const Settings& settings,
                               const std::vector<run::Override>& overrides, double network_factor) {
  run::Config config = with_settings(config_, settings);
  for (const run::Override& each : overrides) {
    if (each.key == "optim.clip") config.optim.clip = std::stod(each.value);
    if (each.key == "dist.bucket") config.dist.bucket = std::stoll(each.value);
  }
  Choice choice;
  choice.settings = settings;
  choice.semantics = semantics_of(settings, config_);
  choice.memory = memory_of(config, nodes_, histories_.num_items(), capacity_);
  SimulationSetup setup = setup_of(config, cluster_);
  setup.network.nic_gbs.value *= network_factor;
  choice.fits =
      choice.memory.device * cluster_.sharing <= kUsableMemory * setup.gpu.memory_gib.value * kGib;
  if (choice.fits) {
    choice.simulation = simulate(setup, drawn_.steps, routes_of(setup.topology.group_size));
  }
  return choice;
}

Simulation PlanSearch::trace(const Settings& settings, int rank) {
  SimulationSetup setup = setup_of(with_settings(config_, settings), cluster_);
  setup.traced = {rank};
  return simulate(setup, drawn_.steps, routes_of(setup.topology.group_size));
}

std::vector<Choice> PlanSearch::run() {
  std::vector<Choice> choices;
  std::vector<std::string> schedules = {"overlap", "exact_prefetch", "semi_async"};
  if (cluster_.ranks() == 1) schedules = {"serial"};
  const bool rounds_rows = config_.train.dtype == "bf16" && cluster_.ranks() > 1;
  for (const int group : group_sizes()) {
    for (const std::string& schedule : schedules) {
      for (const char* gradients : {"f32", "bf16"}) {
        if (cluster_.ranks() == 1 && std::string(gradients) == "bf16") continue;
        Settings settings = {group, schedule, rounds_rows ? "bf16" : config_.dist.rows, gradients,
                             config_.train.recompute};
        Choice choice = try_settings(settings);
        if (!choice.fits && !settings.recompute) {
          settings.recompute = true;
          Choice again = try_settings(settings);
          if (again.fits) choice = std::move(again);
        }
        choices.push_back(std::move(choice));
      }
    }
  }
  std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    if (a.fits != b.fits) return a.fits;
    return a.fits && a.simulation.step_seconds < b.simulation.step_seconds;
  });
  return choices;
}

}  // namespace turbogr::plan
