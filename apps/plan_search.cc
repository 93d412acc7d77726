// `turbogr plan` without --simulate: which settings are fastest, and what they cost.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/plan_command.h"
#include "turbogr/core/check.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/progress.h"
#include "turbogr/plan/checkpoint_interval.h"
#include "turbogr/plan/explain.h"
#include "turbogr/plan/plan_page.h"
#include "turbogr/plan/search.h"

namespace turbogr::apps {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

nlohmann::ordered_json choice_json(const plan::Choice& choice, const plan::SimulationSetup& setup) {
  nlohmann::ordered_json json = {{"group", choice.settings.group},
                                 {"schedule", choice.settings.schedule},
                                 {"spread", choice.settings.spread},
                                 {"tokens", choice.settings.tokens},
                                 {"memory", choice.settings.memory},
                                 {"dtype", choice.settings.dtype},
                                 {"placement", choice.settings.placement},
                                 {"rows", choice.settings.rows},
                                 {"gradients", choice.settings.gradients},
                                 {"recompute", choice.settings.recompute},
                                 {"result", text_of(choice.semantics)},
                                 {"fits", choice.fits},
                                 {"device_gib", choice.memory.device / kGib},
                                 {"activations_gib", choice.memory.activations / kGib},
                                 {"table_gib", choice.memory.table / kGib},
                                 {"least_device_gib", choice.memory.least_device() / kGib},
                                 {"host_gib", choice.memory.host / kGib},
                                 {"least_host_gib", choice.memory.least_host() / kGib},
                                 {"host_steps_gib", choice.memory.host_steps / kGib},
                                 {"host_batches_gib", choice.memory.host_batches / kGib},
                                 {"host_table_gib", choice.memory.host_table / kGib}};
  if (choice.fits) json["simulation"] = json_of(choice.simulation, setup);
  return json;
}

// The fastest whose results are no further from the config's than `semantics`; of those as fast
// the one with fewest keys to set.
const plan::Choice* best_of(const std::vector<plan::Choice>& choices, plan::Semantics semantics) {
  constexpr double kAsFast = 1.001;
  const plan::Choice* fastest = nullptr;
  const plan::Choice* best = nullptr;
  for (const plan::Choice& choice : choices) {
    if (!choice.fits || choice.semantics > semantics) continue;
    if (fastest == nullptr) fastest = best = &choice;
    if (choice.token_seconds() > kAsFast * fastest->token_seconds()) break;
    if (choice.settings.overrides().size() < best->settings.overrides().size()) best = &choice;
  }
  return best;
}

void print_choices(const std::vector<plan::Choice>& choices) {
  std::size_t wide = 40;
  for (const plan::Choice& choice : choices) {
    wide = std::max(wide, choice.settings.text().size());
  }
  print_result("{:<{}}{:>13}{:>10}{:>12}{:>9}{:>8}{:>8}{:>9}\n", "setting", wide, "results",
               "step ms", "Mtokens/s", "linear", "sparse", "dense", "GiB");
  for (const plan::Choice& choice : choices) {
    const double gib = choice.memory.device / kGib;
    if (!choice.fits) {
      print_result("{:<{}}{:>13}{:>47}{:>9.1f}\n", choice.settings.text(), wide,
                   text_of(choice.semantics), "does not fit", gib);
      continue;
    }
    const plan::Simulation& s = choice.simulation;
    print_result("{:<{}}{:>13}{:>10.2f}{:>12.2f}{:>9.3f}{:>7.1f}%{:>7.1f}%{:>9.1f}\n",
                 choice.settings.text(), wide, text_of(choice.semantics), 1e3 * s.step_seconds,
                 1e-6 / choice.token_seconds(), s.linearity(),
                 100 * s.share(train::StageKind::kSparse), 100 * s.share(train::StageKind::kDense),
                 gib);
  }
}

// Where the time of the best setting goes, what binds it, and what one change would make of it.
void print_explanation(const plan::Choice& best, const std::vector<plan::WhatIf>& changes) {
  constexpr double kSomeGain = 1e-3;
  const plan::Simulation& s = best.simulation;
  const double step = s.step_seconds;
  print_result(
      "\nof a step: {:.1f} % computing of the mean rank, {:.1f} % uneven shares, {:.1f} % "
      "rows and ids, {:.1f} % dense sums and waiting in them\n",
      100 * s.compute_seconds / step, 100 * (s.busiest_seconds - s.compute_seconds) / step,
      100 * s.share(train::StageKind::kSparse), 100 * s.share(train::StageKind::kDense));
  const std::vector<plan::Resource> busy = busiest(s);
  std::string others;
  for (std::size_t i = 1; i < busy.size(); ++i) {
    others +=
        fmt::format("{} {} {:.1f} %", i == 1 ? "; then" : ",", busy[i].name, 100 * busy[i].share);
  }
  print_result("binds: {}, busy {:.1f} % of a step{}\n", busy[0].name, 100 * busy[0].share, others);
  std::size_t without = 0;
  for (const plan::WhatIf& change : changes) {
    if (change.gain < kSomeGain) {
      ++without;
      continue;
    }
    print_result("{:+6.1f} % tokens/s with {} (results: {}): {:.2f} ms, linearity {:.3f}\n",
                 100 * change.gain, change.text, change.results,
                 1e3 * change.simulation.step_seconds, change.simulation.linearity());
  }
  if (without > 0) print_result("{} other changes gain nothing\n", without);
}

nlohmann::ordered_json explanation_json(const plan::Choice& best,
                                        const std::vector<plan::WhatIf>& changes) {
  nlohmann::ordered_json json = {{"binds", busiest(best.simulation)[0].name}};
  for (const plan::WhatIf& change : changes) {
    json["changes"].push_back({{"change", change.text},
                               {"result", change.results},
                               {"hardware", change.hardware},
                               {"gain", change.gain},
                               {"step_ms", 1e3 * change.simulation.step_seconds},
                               {"linearity", change.simulation.linearity()}});
  }
  return json;
}

std::string sources_text(const plan::SimulationSetup& setup) {
  const plan::SourceCounts counts =
      count_sources(figures_of(setup.network), count_sources(figures_of(setup.gpu)));
  return fmt::format("figures of {} and {}: {}", setup.gpu.name, setup.network.name, counts.text());
}

std::string epoch_text(double hours) {
  return hours < 1 ? fmt::format("{:.1f} s", 3600 * hours) : fmt::format("{:.1f} hours", hours);
}

// What a page calls a plan: the run it is of.
std::string config_name(const run::Config& config) {
  const std::string name = std::filesystem::path(config.run.dir).filename().string();
  return name.empty() ? "plan" : name;
}

void list_sources(const plan::SimulationSetup& setup) {
  print_result("\n{:<26}{:>10}  source\n", "figure", "value");
  for (const auto& figures : {figures_of(setup.gpu), figures_of(setup.network)}) {
    for (const plan::NamedFigure& each : figures) {
      print_result("{:<26}{:>10g}  {}\n", each.key, each.figure->value, each.figure->source);
    }
  }
}

// How often to save: what a save costs against what a failure loses (Young's rule).
struct Saves {
  double bytes = 0;
  int writers = 1;  // machines of one group
  plan::CheckpointInterval interval;
};

Saves planned_saves(const PlanCommand& command, const plan::SimulationSetup& setup,
                    const plan::Choice& best) {
  const int group = best.settings.group;
  const double dense = 12.0 * static_cast<double>(setup.work.parameters);  // and two moments, f32
  Saves saves = {.bytes = best.memory.table * group + dense,
                 .writers = std::max(1, group / command.cluster.ranks_of_node()),
                 .interval = {}};
  saves.interval = plan::checkpoint_interval({.bytes = saves.bytes,
                                              .writers = saves.writers,
                                              .disk_gbs = command.disk_gbs,
                                              .machine_hours = command.mtbf,
                                              .machines = command.cluster.nodes,
                                              .step_seconds = best.simulation.step_seconds});
  return saves;
}

void print_checkpoints(const PlanCommand& command, const Saves& saves) {
  const plan::CheckpointInterval& interval = saves.interval;
  print_result(
      "save       {:.1f} GB in {:.1f} s at {:g} GB/s a machine of {}, at most; with a failure "
      "every {:.1f} hours save every {:.1f} minutes (checkpoint.every = {}): {:.2f} % of the time "
      "is saving, {:.2f} % is computed in vain\n",
      saves.bytes * 1e-9, interval.save_seconds, command.disk_gbs, saves.writers,
      interval.failure_seconds / 3600, interval.seconds / 60, interval.steps,
      100 * interval.saving_share, 100 * interval.lost_share);
}

nlohmann::ordered_json checkpoints_json(const Saves& saves) {
  const plan::CheckpointInterval& interval = saves.interval;
  return {{"gb", saves.bytes * 1e-9},
          {"writers", saves.writers},
          {"save_s", interval.save_seconds},
          {"failure_hours", interval.failure_seconds / 3600},
          {"interval_s", interval.seconds},
          {"every_steps", interval.steps},
          {"saving_share", interval.saving_share},
          {"lost_share", interval.lost_share}};
}

// Of a rank: of the one that needs most, where shards of tables make a difference to be seen.
void print_memory(const plan::RankMemory& memory, double capacity_gib) {
  const auto range = [](double least, double most) {
    const std::string all = fmt::format("{:.1f}", most / kGib);
    const std::string some = fmt::format("{:.1f}", least / kGib);
    return some == all ? all : some + " to " + all;
  };
  print_result(
      "memory     {} of {:.1f} GiB on the device of every rank: {:.1f} activations, {:.1f} tables "
      "and their state\n",
      range(memory.least_device(), memory.device), capacity_gib, memory.activations / kGib,
      (memory.table - memory.host_table) / kGib);
  print_result(
      "           {} GiB of its host: {:.1f} tables, {:.1f} batches read ahead and kept, {:.1f} "
      "ids, "
      "negatives and inputs of steps on their way\n",
      range(memory.least_host(), memory.host), memory.host_table / kGib, memory.host_batches / kGib,
      memory.host_steps / kGib);
}

// What is known of a plan, as one page.
void write_page(const Context& ctx, const run::Config& config, const PlanCommand& command,
                const plan::SimulationSetup& setup, const plan::Histories& histories,
                plan::PlanSearch& search, const std::vector<plan::Choice>& choices,
                const plan::Choice& best, double epoch_hours) {
  const plan::Simulation traced = search.trace(best.settings, /*rank=*/0);
  const plan::Simulation& s = best.simulation;
  plan::PlanFigures figures;
  figures.name = config_name(config);
  figures.summary =
      fmt::format("{} ranks, {} a machine, {} over {}; {}", command.cluster.ranks(),
                  command.cluster.gpus, setup.gpu.name, setup.network.name, histories.text());
  figures.tiles = {
      {"a step", fmt::format("{:.2f} ms", 1e3 * s.step_seconds)},
      {"tokens/s", grouped_text(static_cast<std::int64_t>(s.tokens / s.step_seconds))},
      {"linearity", fmt::format("{:.3f}", s.linearity())},
      {"exposed communication", fmt::format("{:.1f}%", 100 * (s.share(train::StageKind::kSparse) +
                                                              s.share(train::StageKind::kDense)))},
      {"a device's memory", fmt::format("{:.1f} GiB", best.memory.device / kGib)},
      {"an epoch", epoch_text(epoch_hours)}};
  figures.curves = plan::scaling_curves(ctx, config, command.cluster, command.data, best.settings,
                                        command.scaling);
  figures.curve_note = fmt::format(
      "Curves: {} tokens a rank at most, rows {} and gradients {} on the wire, the best of several "
      "sizes of groups; linearity is the mean rank's computing over the step.",
      grouped_text(std::min(config.train.tokens, command.scaling.tokens)), best.settings.rows,
      best.settings.gradients);
  figures.step = plan::last_step(traced.trace, 0);
  figures.step_seconds = traced.step_seconds;
  for (const plan::TracedStage& stage : figures.step) {
    figures.step_seconds = std::max(figures.step_seconds, stage.end);
  }
  figures.choices = choices;
  figures.memory_gib = setup.gpu.memory_gib.value;
  figures.sources = {sources_text(setup)};
  replace_file(command.html, plan::plan_page(figures));
}

}  // namespace

void run_search(const run::Config& config, const PlanCommand& command) {
  const int ranks = command.cluster.ranks();
  plan::check_plannable(config, command.cluster);
  if (!command.html.empty()) plan::check_scaling(command.cluster, command.scaling);
  const Context ctx;
  const auto histories = histories_for(config, command, command.steps + 3);
  const plan::PlannedFeatures features(config, *histories);
  const plan::SimulationSetup setup = plan::setup_of(config, command.cluster, &features);
  plan::PlanSearch search(ctx, config, command.cluster, *histories, command.steps, command.data);
  const std::vector<plan::Choice> choices = search.run();
  print_result("cluster    {} ranks, {} a machine\n", ranks, command.cluster.ranks_of_node());
  print_data(*histories, features);
  print_result("{} (--explain lists them)\n", sources_text(setup));
  print_result("\n");
  print_choices(choices);
  const plan::Choice* exact = best_of(choices, plan::Semantics::kSame);
  const plan::Choice* any = best_of(choices, plan::Semantics::kLate);
  TGR_CHECK(any != nullptr, "nothing fits ", setup.gpu.memory_gib.value, " GiB of ", setup.gpu.name,
            ": lower train.tokens, take more devices, set embedding.dtype = "
            "\"bf16\", or keep the table in host memory (embedding.memory)");
  const plan::Choice& best = exact != nullptr ? *exact : *any;
  print_result("\n");
  print_simulation(best.simulation, setup);
  const double epoch_hours =
      histories->epoch_tokens() / (best.simulation.tokens / best.simulation.step_seconds) / 3600;
  print_result("epoch      {} of {} tokens", epoch_text(epoch_hours),
               grouped_text(static_cast<std::int64_t>(histories->epoch_tokens())));
  if (command.price > 0) {
    print_result(", {:.2f} at {:g} a device and hour", epoch_hours * ranks * command.price,
                 command.price);
  }
  print_result("\n");
  print_memory(best.memory, setup.gpu.memory_gib.value);
  Saves saves;
  if (command.mtbf > 0) {
    saves = planned_saves(command, setup, best);
    print_checkpoints(command, saves);
  }
  std::string line;
  for (const run::Override& each : best.settings.overrides()) {
    line += " --" + each.key + "=" + each.value;
  }
  print_result("take      {}\n", line);
  std::vector<plan::WhatIf> changes;
  if (command.explain) {
    changes = what_would_help(search, best);
    print_explanation(best, changes);
    list_sources(setup);
  }
  if (!command.html.empty()) {
    write_page(ctx, config, command, setup, *histories, search, choices, best, epoch_hours);
  }
  if (command.json.empty()) return;
  nlohmann::ordered_json json = {{"ranks", ranks},
                                 {"gpu", setup.gpu.name},
                                 {"network", setup.network.name},
                                 {"epoch_hours", epoch_hours}};
  if (command.price > 0) json["epoch_price"] = epoch_hours * ranks * command.price;
  if (command.mtbf > 0) json["checkpoints"] = checkpoints_json(saves);
  if (command.explain) json["explain"] = explanation_json(best, changes);
  json["best"] = choice_json(best, setup);
  json["best"]["links"] = links_json(best.simulation);
  for (std::size_t rank = 0; rank < setup.nodes.size(); ++rank) {
    json["best"]["memory_of_ranks"].push_back({{"device_gib", best.memory.device_of(rank) / kGib},
                                               {"host_gib", best.memory.host_of(rank) / kGib}});
  }
  for (const plan::Choice& choice : choices) json["choices"].push_back(choice_json(choice, setup));
  replace_file(command.json, json.dump(2) + "\n");
}

}  // namespace turbogr::apps
