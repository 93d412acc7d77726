// `turbogr plan`: what a run would cost on a cluster, before anybody rents it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "turbogr/core/check.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/progress.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/plan/cluster.h"
#include "turbogr/plan/histories.h"
#include "turbogr/plan/search.h"
#include "turbogr/plan/simulator.h"
#include "turbogr/run/config.h"

namespace turbogr::apps {
namespace {

struct PlanCommand {
  plan::ClusterOptions cluster;
  int ranks = 0;
  std::string data;
  bool simulate = false;
  int steps = 3;
  std::vector<int> trace_ranks = {0};
  std::string trace, json;
  plan::Disturbances disturbances;
  double price = 0;     // of a device and hour
  double mtbf = 0;      // hours between failures of a machine
  double disk_gbs = 2;  // of a machine
  bool explain = false;
};

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

double seconds_from(std::int64_t begin_ns) {
  return static_cast<double>(Trace::now_ns() - begin_ns) * 1e-9;
}

nlohmann::ordered_json json_of(const plan::Simulation& result, int ranks) {
  nlohmann::ordered_json json = {{"ranks", ranks},
                                 {"step_ms", 1e3 * result.step_seconds},
                                 {"tokens_per_s", result.tokens / result.step_seconds},
                                 {"linearity", result.linearity()},
                                 {"waiting", result.waiting_share()},
                                 {"exposed_sparse", result.share(train::StageKind::kSparse)},
                                 {"exposed_dense", result.share(train::StageKind::kDense)},
                                 {"nic_mb", result.nic_bytes * 1e-6},
                                 {"local_mb", result.local_bytes * 1e-6}};
  for (const plan::StageSeconds& stage : result.stages) {
    json["stages"].push_back({{"name", stage.name},
                              {"exposed_ms", 1e3 * stage.exposed},
                              {"waiting_ms", 1e3 * stage.waiting},
                              {"hidden_ms", 1e3 * stage.hidden}});
  }
  return json;
}

void print_simulation(const plan::Simulation& result, const plan::SimulationSetup& setup) {
  const auto ranks = static_cast<double>(setup.nodes.size());
  const double mfu =
      result.causal_flops / ranks / result.step_seconds / (setup.gpu.peak_tflops.value * 1e12);
  print_result("step       {:.2f} ms: {} tokens/s, causal MFU {:.1f} % of {:g} TFLOP/s\n",
               1e3 * result.step_seconds,
               grouped_text(static_cast<std::int64_t>(result.tokens / result.step_seconds)),
               100 * mfu, setup.gpu.peak_tflops.value);
  print_result(
      "linearity  {:.3f}; exposed: sparse {:.1f} %, dense {:.1f} % of a step; the mean rank has "
      "{:.2f} % less to compute than the busiest\n",
      result.linearity(), 100 * result.share(train::StageKind::kSparse),
      100 * result.share(train::StageKind::kDense), 100 * result.waiting_share());
  print_result(
      "links      {:.1f} MB a rank and step inside machines, {:.1f} MB a machine between them\n",
      result.local_bytes * 1e-6, result.nic_bytes * 1e-6);
  print_result("{:<32}{:>12}{:>22}{:>12}\n", "stage, ms of a step", "exposed", "of it for others",
               "hidden");
  for (const plan::StageSeconds& stage : result.stages) {
    print_result("{:<32}{:>12.3f}{:>22.3f}{:>12.3f}\n", stage.name, 1e3 * stage.exposed,
                 1e3 * stage.waiting, 1e3 * stage.hidden);
  }
}

std::unique_ptr<plan::Histories> histories_for(const run::Config& config,
                                               const PlanCommand& command, int steps) {
  const std::int64_t tokens = std::max(config.train.tokens, config.data.max_length);
  return plan::open_histories(
      command.data,
      {.config = config, .least_tokens = (steps + 1) * command.cluster.ranks() * tokens});
}

nlohmann::ordered_json json_of(const plan::Choice& choice, int ranks) {
  nlohmann::ordered_json json = {{"group", choice.settings.group},
                                 {"schedule", choice.settings.schedule},
                                 {"rows", choice.settings.rows},
                                 {"gradients", choice.settings.gradients},
                                 {"recompute", choice.settings.recompute},
                                 {"result", text_of(choice.semantics)},
                                 {"fits", choice.fits},
                                 {"device_gib", choice.memory.device / kGib},
                                 {"activations_gib", choice.memory.activations / kGib},
                                 {"table_gib", choice.memory.table / kGib},
                                 {"host_gib", choice.memory.host / kGib}};
  if (choice.fits) json["simulation"] = json_of(choice.simulation, ranks);
  return json;
}

// The fastest whose results are no further from the config's than `semantics`.
const plan::Choice* best_of(const std::vector<plan::Choice>& choices, plan::Semantics semantics) {
  for (const plan::Choice& choice : choices) {
    if (choice.fits && choice.semantics <= semantics) return &choice;
  }
  return nullptr;
}

void print_choices(const std::vector<plan::Choice>& choices) {
  print_result("{:<58}{:>10}{:>10}{:>9}{:>8}{:>8}{:>9}\n", "setting", "results", "step ms",
               "linear", "sparse", "dense", "GiB");
  for (const plan::Choice& choice : choices) {
    const double gib = choice.memory.device / kGib;
    if (!choice.fits) {
      print_result("{:<58}{:>10}{:>35}{:>9.1f}\n", choice.settings.text(),
                   text_of(choice.semantics), "does not fit", gib);
      continue;
    }
    const plan::Simulation& s = choice.simulation;
    print_result("{:<58}{:>10}{:>10.2f}{:>9.3f}{:>7.1f}%{:>7.1f}%{:>9.1f}\n",
                 choice.settings.text(), text_of(choice.semantics), 1e3 * s.step_seconds,
                 s.linearity(), 100 * s.share(train::StageKind::kSparse),
                 100 * s.share(train::StageKind::kDense), gib);
  }
}

// Where the time of the best setting goes, and what one change would make of it.
void explain_choice(plan::PlanSearch& search, const plan::Choice& best, const run::Config& config) {
  const plan::Simulation& s = best.simulation;
  const double step = s.step_seconds;
  print_result(
      "\nof a step: {:.1f} % computing of the mean rank, {:.1f} % uneven shares, {:.1f} % "
      "rows and ids, {:.1f} % dense sums and waiting in them\n",
      100 * s.compute_seconds / step, 100 * (s.busiest_seconds - s.compute_seconds) / step,
      100 * s.share(train::StageKind::kSparse), 100 * s.share(train::StageKind::kDense));
  struct Change {
    std::string text;
    std::vector<run::Override> overrides;
    double network = 1;
  };
  std::vector<Change> changes = {
      {"a network twice as fast", {}, 2},
      {"dist.bucket of 32 MiB", {{"dist.bucket", std::to_string(32 << 20)}}, 1}};
  if (config.optim.clip > 0) {
    changes.push_back(
        {"optim.clip = 0, so that row gradients may return late", {{"optim.clip", "0"}}, 1});
  }
  for (const Change& change : changes) {
    const plan::Choice with = search.try_changed(best.settings, change.overrides, change.network);
    if (!with.fits) continue;
    print_result("with {}: {:.2f} ms, linearity {:.3f}\n", change.text,
                 1e3 * with.simulation.step_seconds, with.simulation.linearity());
  }
}

void print_sources(const plan::SimulationSetup& setup) {
  int measured = 0, published = 0, derived = 0;
  const auto count = [&](const std::vector<plan::NamedFigure>& figures) {
    for (const plan::NamedFigure& each : figures) {
      const std::string& source = each.figure->source;
      ++(source.starts_with("measured")    ? measured
         : source.starts_with("published") ? published
                                           : derived);
    }
  };
  count(figures_of(setup.gpu));
  count(figures_of(setup.network));
  print_result(
      "figures    of {} and {}: {} measured, {} published, {} derived (--explain lists them)\n",
      setup.gpu.name, setup.network.name, measured, published, derived);
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
void print_checkpoints(const PlanCommand& command, const plan::SimulationSetup& setup,
                       const plan::Choice& best) {
  const int group = best.settings.group;
  const int writers = std::max(1, group / command.cluster.gpus);           // machines of one group
  const double dense = 12.0 * static_cast<double>(setup.work.parameters);  // and two moments, f32
  const double bytes = best.memory.table * group + dense;
  const double save = bytes / (command.disk_gbs * 1e9 * writers);
  const double between = 3600 * command.mtbf / command.cluster.nodes;
  const double interval = std::sqrt(2 * save * between);
  print_result(
      "save       {:.1f} GB in {:.1f} s at {:g} GB/s a machine, at most; with a failure every "
      "{:.1f} "
      "hours save every {:.1f} minutes (checkpoint.every = {}): {:.2f} % of the time is lost\n",
      bytes * 1e-9, save, command.disk_gbs, between / 3600, interval / 60,
      static_cast<std::int64_t>(interval / best.simulation.step_seconds),
      100 * (save / interval + interval / 2 / between));
}

void run_plan(const run::Config& config, const PlanCommand& command) {
  const int ranks = command.cluster.ranks();
  const plan::SimulationSetup setup = plan::setup_of(config, command.cluster);
  const Context ctx;
  const auto histories = histories_for(config, command, command.steps + 3);
  plan::PlanSearch search(ctx, config, command.cluster, *histories, command.steps);
  const std::vector<plan::Choice> choices = search.run();
  print_result("cluster    {} ranks, {} a machine\n", ranks, command.cluster.gpus);
  print_result("data       {}\n", histories->text());
  print_sources(setup);
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
  print_result("epoch      {} of {} tokens",
               epoch_hours < 1 ? fmt::format("{:.1f} s", 3600 * epoch_hours)
                               : fmt::format("{:.1f} hours", epoch_hours),
               grouped_text(static_cast<std::int64_t>(histories->epoch_tokens())));
  if (command.price > 0) {
    print_result(", {:.2f} at {:g} a device and hour", epoch_hours * ranks * command.price,
                 command.price);
  }
  print_result(
      "\nmemory     {:.1f} of {:.1f} GiB a device: {:.1f} activations, {:.1f} item table and "
      "its state\n",
      best.memory.device / kGib, setup.gpu.memory_gib.value, best.memory.activations / kGib,
      best.memory.table / kGib);
  if (command.mtbf > 0) print_checkpoints(command, setup, best);
  std::string line;
  for (const run::Override& each : best.settings.overrides()) {
    line += " --" + each.key + "=" + each.value;
  }
  print_result("take      {}\n", line);
  if (command.explain) {
    explain_choice(search, best, config);
    list_sources(setup);
  }
  if (command.json.empty()) return;
  nlohmann::ordered_json json = {{"ranks", ranks},
                                 {"gpu", setup.gpu.name},
                                 {"network", setup.network.name},
                                 {"epoch_hours", epoch_hours}};
  if (command.price > 0) json["epoch_price"] = epoch_hours * ranks * command.price;
  json["best"] = json_of(best, ranks);
  for (const plan::Choice& choice : choices) json["choices"].push_back(json_of(choice, ranks));
  replace_file(command.json, json.dump(2) + "\n");
}

bool is_disturbed(const plan::Disturbances& d) {
  return d.slow_rank != -1 || d.slow_factor != 1 || d.slow_link.node != -1 ||
         d.slow_link.factor != 1 || d.jitter != 0;
}

void check_disturbances(const plan::Disturbances& d, int ranks) {
  TGR_CHECK((d.slow_rank == -1) == (d.slow_factor == 1),
            "--slow-rank and --slow-factor go together: which rank, and how many times as long");
  TGR_CHECK(d.slow_rank >= -1 && d.slow_rank < ranks, "--slow-rank ", d.slow_rank, " of ", ranks,
            " ranks, which are counted from 0");
  TGR_CHECK(d.slow_factor > 0 && d.slow_factor <= 1e6, "--slow-factor ", d.slow_factor,
            "; wanted: a number above 0, at most a million");
  TGR_CHECK((d.slow_link.node == -1) == (d.slow_link.factor == 1),
            "--slow-node and --slow-link go together: which machine, and what share of its "
            "bandwidth is left");
  TGR_CHECK(d.slow_link.factor > 1e-6 && d.slow_link.factor <= 1, "--slow-link ",
            d.slow_link.factor, "; wanted: a share of the bandwidth, above 0 and at most 1");
  TGR_CHECK(d.jitter >= 0 && d.jitter <= 1, "--jitter ", d.jitter, "; wanted: a share from 0 to 1");
}

void run_simulation(const run::Config& config, const PlanCommand& command) {
  check_disturbances(command.disturbances, command.cluster.ranks());
  plan::SimulationSetup setup = plan::setup_of(config, command.cluster);
  setup.disturbances = command.disturbances;
  setup.disturbances.seed = static_cast<std::uint64_t>(config.run.seed);
  const int ranks = command.cluster.ranks();
  if (!command.trace.empty()) setup.traced = command.trace_ranks;
  for (const int rank : setup.traced) {
    TGR_CHECK(rank >= 0 && rank < ranks, "--trace-ranks names rank ", rank, " of ", ranks,
              "; ranks are counted from 0");
  }
  const int steps = command.steps + (setup.schedule == train::StepSchedule::kSerial ? 2 : 3);
  const std::int64_t start = Trace::now_ns();
  const Context ctx;
  const auto histories = histories_for(config, command, steps);
  const plan::DrawnSteps drawn = plan::draw_steps(ctx, config, *histories, ranks, steps);
  const double draw_seconds = seconds_from(start);
  const std::int64_t began = Trace::now_ns();
  const std::clock_t began_clock = std::clock();  // of all threads
  const std::vector<plan::StepRoutes> routes =
      plan::route_steps(ctx,
                        {.topology = setup.topology,
                         .placement = embedding::placement_from_name(config.dist.placement),
                         .rows = histories->num_items()},
                        drawn.steps);
  const double route_seconds = seconds_from(began);
  const plan::Simulation result = plan::simulate(setup, drawn.steps, routes);
  const double simulation_seconds = seconds_from(began);
  const double processor_seconds =
      static_cast<double>(std::clock() - began_clock) / static_cast<double>(CLOCKS_PER_SEC);
  double plan_ms = 0;
  for (const plan::StepBatch& step : drawn.steps) plan_ms += 1e3 * step.plan_seconds;
  plan_ms /= static_cast<double>(drawn.steps.size());
  print_result("cluster    {} ranks, {} a machine, {} over {}; groups of {}\n", ranks,
               command.cluster.gpus, setup.gpu.name, setup.network.name, setup.topology.group_size);
  print_result("data       {}\n", histories->text());
  print_simulation(result, setup);
  print_result(
      "simulated  {} steps; drawn in {:.2f} s (sharing out {:.1f} ms a step, {:.1f} ns an id), "
      "routed in {:.2f} s, timed in {:.2f} s ({:.2f} s of processor time)\n",
      drawn.steps.size(), draw_seconds, plan_ms,
      1e9 * drawn.id_seconds / static_cast<double>(drawn.ids_marked), route_seconds,
      simulation_seconds - route_seconds, processor_seconds);
  if (!command.trace.empty()) plan::write_trace(command.trace, result);
  if (!command.json.empty()) {
    nlohmann::ordered_json json = json_of(result, ranks);
    json["plan_ms"] = plan_ms;
    json["simulation_s"] = simulation_seconds;
    json["simulation_processor_s"] = processor_seconds;
    replace_file(command.json, json.dump(2) + "\n");
  }
}

}  // namespace

Command* add_plan(Command& app) {
  Command* command = app.add_subcommand(
      "plan", "Predict what a run takes on a cluster, from measured costs and real batches");
  command->take_config();
  command->footer(
      "The batches, their sharing out, the ids and where they move are those that training would "
      "have;\nwhat computing and links take is of descriptions whose every figure names its "
      "source.\n`docs/planning.md` says what is modelled and what is not.");
  auto options = std::make_shared<PlanCommand>();
  plan::ClusterOptions& cluster = options->cluster;
  command->add_option("--nodes", cluster.nodes, "Machines")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--gpus", cluster.gpus, "Devices of a machine, a rank each")
      ->check(is_positive())
      ->capture_default_str();
  Option* ranks = command->add_option("--ranks", options->ranks,
                                      "In place of --nodes: a multiple of --gpus, or fewer");
  ranks->check(is_positive());
  command->add_option("--gpu", cluster.gpu, "h200, h100, b200, 910b or the file of a description")
      ->capture_default_str();
  command
      ->add_option("--network", cluster.network,
                   "ib400x8, roce200, eth25 or the file of a description")
      ->capture_default_str();
  command->add_option(
      "--data", options->data,
      "Store, kuairand27k, movielens or a CSV file of lengths; default: data.store");
  command->add_flag("--simulate", options->simulate, "The config as it is, instead of a search");
  command->add_option("--steps", options->steps, "Steps to time, after the first")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--trace", options->trace, "Write stages of --trace-ranks for Perfetto");
  command->add_option("--trace-ranks", options->trace_ranks, "Ranks to trace")->delimiter(',');
  command->add_option("--slow-rank", options->disturbances.slow_rank, "A rank that is slow");
  command->add_option("--slow-factor", options->disturbances.slow_factor,
                      "So many times as long it computes");
  command->add_option("--slow-node", options->disturbances.slow_link.node,
                      "A machine whose links are slow");
  command->add_option("--slow-link", options->disturbances.slow_link.factor,
                      "Their share of the bandwidth");
  command->add_option("--jitter", options->disturbances.jitter,
                      "Spread of every rank's computing, as a share");
  command->add_option("--price", options->price, "Of a device and hour: what an epoch costs")
      ->check(is_not_negative());
  command
      ->add_option("--mtbf", options->mtbf,
                   "Hours between failures of a machine: how often to save")
      ->check(is_not_negative());
  command->add_option("--disk-gbs", options->disk_gbs, "What a machine writes a second, in GB")
      ->check(is_positive())
      ->capture_default_str();
  command->add_flag("--explain", options->explain,
                    "What binds, what would help, and where every figure is from");
  command->add_option("--json", options->json, "Also write the figures to this file");
  command->callback([command, options, ranks] {
    const data::InterruptGuard guard;
    const run::ConfigArguments arguments = run::split_config_arguments(command->remaining());
    run::Config config = run::load_config(arguments.path, arguments.overrides);
    // What is planned are devices, wherever the config trains today.
    config.train.device = "cuda";
    PlanCommand plan = *options;
    TGR_CHECK(plan.simulate || plan.trace.empty(),
              "--trace is of one setting; add --simulate, which takes the config as it is");
    TGR_CHECK(plan.simulate || !is_disturbed(plan.disturbances),
              "--slow-rank, --slow-node and --jitter disturb one setting; add --simulate");
    TGR_CHECK(!plan.simulate || !(plan.explain || plan.price > 0 || plan.mtbf > 0),
              "--explain, --price and --mtbf are of the search; leave out --simulate");
    if (ranks->given()) {
      plan.cluster.gpus = std::min(plan.cluster.gpus, plan.ranks);
      TGR_CHECK(plan.ranks % plan.cluster.gpus == 0, "--ranks ", plan.ranks,
                " is no multiple of --gpus ", plan.cluster.gpus, "; give --nodes and --gpus");
      plan.cluster.nodes = plan.ranks / plan.cluster.gpus;
    }
    if (plan.data.empty()) plan.data = config.data.store;
    TGR_CHECK(!plan.data.empty(), "no data to plan with; give --data or data.store");
    plan.simulate ? run_simulation(config, plan) : run_plan(config, plan);
  });
  return command;
}

}  // namespace turbogr::apps
