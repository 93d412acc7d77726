#include "turbogr/plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/data/batching.h"
#include "turbogr/run/combinations.h"
#include "turbogr/run/run_options.h"

namespace turbogr::plan {
namespace {

// Of a device's memory: the rest is the driver's and the libraries'.
constexpr double kUsableMemory = 0.95;
// Of batches of another size than the config's: two steps are timed, or one after one with late
// rows.
constexpr int kChangedSteps = 4;
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

run::Config with_settings(const run::Config& config, const Settings& settings) {
  run::Config changed = config;
  changed.dist.group = settings.group;
  changed.train.schedule = settings.schedule;
  changed.dist.rows = settings.rows;
  changed.dist.gradients = settings.gradients;
  changed.train.recompute = settings.recompute;
  changed.dist.spread = settings.spread;
  if (settings.tokens > 0) changed.train.tokens = settings.tokens;
  if (!settings.memory.empty()) changed.embedding.memory = settings.memory;
  if (!settings.dtype.empty()) changed.embedding.dtype = settings.dtype;
  if (!settings.placement.empty()) changed.dist.placement = settings.placement;
  return changed;
}

}  // namespace

std::vector<run::Override> Settings::overrides() const {
  std::vector<run::Override> all = {{"dist.group", std::to_string(group)},
                                    {"train.schedule", schedule},
                                    {"dist.rows", rows},
                                    {"dist.gradients", gradients},
                                    {"train.recompute", recompute ? "true" : "false"}};
  if (spread) all.push_back({"dist.spread", "true"});
  if (tokens > 0) all.push_back({"train.tokens", std::to_string(tokens)});
  if (!memory.empty()) all.push_back({"embedding.memory", memory});
  if (!dtype.empty()) all.push_back({"embedding.dtype", dtype});
  if (!placement.empty()) all.push_back({"dist.placement", placement});
  return all;
}

std::string Settings::text() const {
  std::string text = fmt::format("groups of {}{}, {}, rows {}, gradients {}", group,
                                 spread ? " over machines" : "", schedule, rows, gradients);
  if (tokens > 0) text += fmt::format(", {} tokens", tokens);
  if (memory == "host") text += ", tables on hosts";
  if (!dtype.empty()) text += ", tables " + dtype;
  if (!placement.empty()) text += ", dealt by " + placement;
  if (recompute) text += ", recompute";
  return text;
}

Semantics semantics_of(const Settings& settings, const run::Config& config) {
  if (settings.tokens > 0 && settings.tokens != config.train.tokens) return Semantics::kOtherBatch;
  if (settings.schedule == "semi_async") return Semantics::kLate;
  const bool rows_rounded = settings.rows != "f32" && config.train.dtype != "bf16";
  const bool table_rounded = !settings.dtype.empty() && settings.dtype != config.embedding.dtype;
  return rows_rounded || table_rounded || settings.gradients != "f32" ? Semantics::kRounded
                                                                      : Semantics::kSame;
}

std::string_view text_of(Semantics semantics) {
  switch (semantics) {
    case Semantics::kSame:
      return "same";
    case Semantics::kRounded:
      return "rounded";
    case Semantics::kLate:
      return "late rows";
    case Semantics::kOtherBatch:
      break;
  }
  return "other batch";
}

PlanSearch::PlanSearch(const Context& ctx, const run::Config& config, const ClusterOptions& cluster,
                       const Histories& histories, int steps, std::string data)
    : ctx_(ctx), config_(config), cluster_(cluster), histories_(histories), data_(std::move(data)) {
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    nodes_.push_back(rank / cluster.ranks_of_node());
  }
  batches_.emplace(0, make_batches(config, histories, steps + 3));
}

PlanSearch::Batches PlanSearch::make_batches(const run::Config& config, const Histories& histories,
                                             int steps) const {
  Batches batches;
  batches.features = std::make_unique<PlannedFeatures>(config, histories);
  batches.drawn = draw_steps(ctx_, config, histories, cluster_.ranks(), steps);
  const data::BatchPlanner planner(histories.windows(),
                                   run::plan_options(config, 0, cluster_.ranks()));
  batches.shape = {.num_items = histories.num_items(),
                   .tokens = planner.max_batch_tokens(),
                   .sequences = planner.max_batch_samples(),
                   .features = batches.features.get()};
  return batches;
}

// Draws them where there are histories enough.
bool PlanSearch::has_batches(std::int64_t tokens) {
  if (batches_.contains(tokens)) return true;
  run::Config config = config_;
  config.train.tokens = tokens;
  const double wanted = (kChangedSteps + 1.0) * cluster_.ranks() * static_cast<double>(tokens);
  if (histories_.epoch_tokens() >= wanted) {
    batches_.emplace(tokens, make_batches(config, histories_, kChangedSteps));
    return true;
  }
  if (histories_.store() != nullptr || data_.empty()) return false;
  auto made_up = open_histories(data_, {.config = config, .least_tokens = wanted});
  if (made_up->epoch_tokens() < wanted) return false;  // a table of lengths
  Batches batches = make_batches(config, *made_up, kChangedSteps);
  batches.made_up = std::move(made_up);
  batches_.emplace(tokens, std::move(batches));
  return true;
}

const std::vector<StepRoutes>& PlanSearch::routes_of(const Settings& settings,
                                                     const dist::Topology& topology) {
  Batches& batches = batches_of(settings.tokens);
  const std::string& placement =
      settings.placement.empty() ? config_.dist.placement : settings.placement;
  const std::tuple<int, bool, std::string> key = {topology.group_size, settings.spread, placement};
  const auto known = batches.routes.find(key);
  if (known != batches.routes.end()) return known->second;
  const LayoutOptions layout = {.topology = topology,
                                .placement = embedding::placement_from_name(placement),
                                .rows = batches.shape.num_items,
                                .feature_rows = batches.features->table_rows()};
  return batches.routes.emplace(key, route_steps(ctx_, layout, batches.drawn.steps)).first->second;
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

std::vector<std::string> PlanSearch::schedules() const {
  if (cluster_.ranks() == 1) return {"serial"};
  return {"overlap", "exact_prefetch", "semi_async"};
}

bool PlanSearch::goes_together(const Settings& settings) const {
  try {
    run::check_combinations(with_settings(config_, settings),
                            {.world = cluster_.ranks(), .sharded = settings.group > 1});
  } catch (const Error&) {
    return false;
  }
  return true;
}

Choice PlanSearch::try_changed(const Settings& settings, const Change& change) {
  run::Config config = with_settings(config_, settings);
  if (change.config) change.config(config);
  Batches& batches = batches_of(settings.tokens);
  Choice choice;
  choice.settings = settings;
  choice.semantics = semantics_of(settings, config_);
  choice.memory = memory_of(config, nodes_, batches.shape);
  SimulationSetup setup = setup_of(config, cluster_, batches.features.get());
  if (change.hardware) change.hardware(setup);
  choice.fits =
      choice.memory.device * cluster_.sharing <= kUsableMemory * setup.gpu.memory_gib.value * kGib;
  if (choice.fits) {
    choice.simulation = simulate(setup, batches.drawn.steps, routes_of(settings, setup.topology));
  }
  return choice;
}

Simulation PlanSearch::trace(const Settings& settings, int rank) {
  Batches& batches = batches_of(settings.tokens);
  SimulationSetup setup =
      setup_of(with_settings(config_, settings), cluster_, batches.features.get());
  setup.traced = {rank};
  return simulate(setup, batches.drawn.steps, routes_of(settings, setup.topology));
}

// Where it does not fit as it is, with activations made again, tables on hosts or both: the fastest
// of those that do.
Choice PlanSearch::try_to_fit(const Settings& settings) {
  Choice best = try_settings(settings);
  if (best.fits) return best;
  for (const bool host : {false, true}) {
    for (const bool recompute : {false, true}) {
      Settings other = settings;
      if (host && config_.train.device == "cuda") other.memory = "host";
      other.recompute = settings.recompute || recompute;
      if (!goes_together(other)) continue;
      Choice choice = try_settings(other);
      if (!choice.fits) continue;
      if (!best.fits || choice.token_seconds() < best.token_seconds()) best = std::move(choice);
    }
  }
  return best;
}

std::vector<Settings> PlanSearch::spread_groups(const Settings& settings) const {
  std::vector<Settings> groups;
  if (cluster_.nodes == 1 || cluster_.ranks_of_node() == 1) return groups;
  for (int group = cluster_.nodes; group < cluster_.ranks(); group *= 2) {
    if (cluster_.ranks() % group != 0) continue;
    groups.push_back(settings);
    groups.back().group = group;
    groups.back().spread = true;
  }
  return groups;
}

// What else could be done: rows rounded on the wire, tables in 16 bits, rows dealt the other way,
// groups over machines, batches half and twice as large.
std::vector<Settings> PlanSearch::changes_to(const Settings& settings, bool batches) const {
  std::vector<Settings> changes = spread_groups(settings);
  const auto changed = [&]() -> Settings& { return changes.emplace_back(settings); };
  if (settings.rows == "f32" && cluster_.ranks() > 1) changed().rows = "bf16";
  if (settings.dtype.empty() && config_.embedding.dtype == "f32") {
    Settings& half = changed();
    half.dtype = "bf16";
    const bool on_host =
        (settings.memory.empty() ? config_.embedding.memory : settings.memory) == "host";
    if (on_host) half.memory = "device";  // the other way to make room
  }
  if (cluster_.ranks() > 1) {
    const bool hashed =
        (settings.placement.empty() ? config_.dist.placement : settings.placement) == "hash";
    changed().placement = hashed ? "round_robin" : "hash";
  }
  if (batches && config_.train.tokens > 0) {
    if (config_.train.tokens / 2 >= config_.data.max_length) {
      changed().tokens = config_.train.tokens / 2;
    }
    changed().tokens = 2 * config_.train.tokens;
  }
  std::erase_if(changes, [&](const Settings& each) { return !goes_together(each); });
  return changes;
}

std::vector<Settings> PlanSearch::neighbours(const Settings& settings) {
  std::vector<Settings> all = changes_to(settings, /*batches=*/settings.tokens == 0);
  const auto changed = [&]() -> Settings& { return all.emplace_back(settings); };
  for (const int group : group_sizes()) {
    if (group == settings.group && !settings.spread) continue;
    Settings& other = changed();
    other.group = group;
    other.spread = false;
  }
  for (const std::string& schedule : schedules()) {
    if (schedule != settings.schedule) changed().schedule = schedule;
  }
  if (cluster_.ranks() > 1) changed().gradients = settings.gradients == "f32" ? "bf16" : "f32";
  if (settings.recompute) changed().recompute = false;
  std::erase_if(all, [&](const Settings& each) {
    return !goes_together(each) || (each.tokens > 0 && !has_batches(each.tokens));
  });
  return all;
}

std::vector<Choice> PlanSearch::run() {
  std::vector<Choice> choices;
  const bool rounds_rows = config_.train.dtype == "bf16" && cluster_.ranks() > 1;
  for (const int group : group_sizes()) {
    for (const std::string& schedule : schedules()) {
      for (const char* gradients : {"f32", "bf16"}) {
        if (cluster_.ranks() == 1 && std::string(gradients) == "bf16") continue;
        choices.push_back(try_to_fit({.group = group,
                                      .schedule = schedule,
                                      .rows = rounds_rows ? "bf16" : config_.dist.rows,
                                      .gradients = gradients,
                                      .recompute = config_.train.recompute}));
      }
    }
  }
  const auto faster = [](const Choice& a, const Choice& b) {
    if (a.fits != b.fits) return a.fits;
    return a.fits && a.token_seconds() < b.token_seconds();
  };
  std::stable_sort(choices.begin(), choices.end(), faster);
  std::vector<Settings> changes;
  if (!choices.front().fits && config_.embedding.dtype == "f32") {
    for (const Choice& choice : choices) {  // rounded, if there is no other way
      changes.push_back(choice.settings);
      changes.back().dtype = "bf16";
    }
    std::erase_if(changes, [&](const Settings& each) { return !goes_together(each); });
  }
  for (const Semantics semantics : {Semantics::kSame, Semantics::kRounded, Semantics::kLate}) {
    const auto best = std::find_if(choices.begin(), choices.end(), [&](const Choice& choice) {
      return choice.fits && choice.semantics == semantics;
    });
    if (best == choices.end()) continue;
    const auto own = changes_to(best->settings, /*batches=*/semantics == Semantics::kSame);
    changes.insert(changes.end(), own.begin(), own.end());
  }
  for (const Settings& settings : changes) {
    if (settings.tokens > 0 && !has_batches(settings.tokens)) continue;
    choices.push_back(try_to_fit(settings));
  }
  std::stable_sort(choices.begin(), choices.end(), faster);
  return choices;
}

}  // namespace turbogr::plan
