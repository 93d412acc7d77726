// `turbogr plan`: what a run would cost on a cluster, before anybody rents it.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/config_arguments.h"
#include "apps/plan_command.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/progress.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/run/config.h"
#include "turbogr/run/run_options.h"

namespace turbogr::apps {

nlohmann::ordered_json json_of(const plan::Simulation& result, const plan::SimulationSetup& setup) {
  nlohmann::ordered_json json = {{"ranks", setup.nodes.size()},
                                 {"step_ms", 1e3 * result.step_seconds},
                                 {"tokens_per_s", result.tokens / result.step_seconds},
                                 {"mfu", result.mfu(setup)},
                                 {"linearity", result.linearity()},
                                 {"waiting", result.waiting_share()},
                                 {"exposed_sparse", result.share(train::StageKind::kSparse)},
                                 {"exposed_dense", result.share(train::StageKind::kDense)},
                                 {"nic_mb", result.nic_bytes() * 1e-6},
                                 {"local_mb", result.local_bytes() * 1e-6}};
  for (const plan::Resource& each : busiest(result)) {
    json["busy"].push_back({{"what", each.name}, {"share", each.share}});
  }
  for (const plan::StageSeconds& stage : result.stages) {
    json["stages"].push_back({{"name", stage.name},
                              {"exposed_ms", 1e3 * stage.exposed},
                              {"waiting_ms", 1e3 * stage.waiting},
                              {"hidden_ms", 1e3 * stage.hidden}});
  }
  return json;
}

nlohmann::ordered_json links_json(const plan::Simulation& result) {
  nlohmann::ordered_json json;
  const auto add = [&](const char* kind, const std::vector<plan::LinkUse>& links) {
    for (const plan::LinkUse& link : links) {
      json[kind].push_back({{"out_mb", link.out_bytes * 1e-6},
                            {"in_mb", link.in_bytes * 1e-6},
                            {"busy", link.seconds() / result.step_seconds}});
    }
  };
  add("ports", result.ports);
  add("nics", result.nics);
  return json;
}

namespace {

// The links that carry most and least, the fuller way of each; some have no rank.
template <class Name>
void print_links(const std::string& what, const std::vector<plan::LinkUse>& links, Name&& name_of) {
  std::vector<std::size_t> used;
  for (std::size_t link = 0; link < links.size(); ++link) {
    if (links[link].bytes() > 0) used.push_back(link);
  }
  if (used.empty()) return;
  const auto [least, most] = std::minmax_element(
      used.begin(), used.end(),
      [&](std::size_t a, std::size_t b) { return links[a].bytes() < links[b].bytes(); });
  print_result("           {}: most {:.1f} MB ({}), least {:.1f} MB ({})\n", what,
               links[*most].bytes() * 1e-6, name_of(*most), links[*least].bytes() * 1e-6,
               name_of(*least));
}

}  // namespace

void print_simulation(const plan::Simulation& result, const plan::SimulationSetup& setup) {
  print_result("step       {:.2f} ms: {} tokens/s, causal MFU {:.1f} % of {:g} TFLOP/s\n",
               1e3 * result.step_seconds,
               grouped_text(static_cast<std::int64_t>(result.tokens / result.step_seconds)),
               100 * result.mfu(setup), setup.gpu.peak_tflops.value);
  print_result(
      "linearity  {:.3f}; exposed: sparse {:.1f} %, dense {:.1f} % of a step; the mean rank has "
      "{:.2f} % less to compute than the busiest\n",
      result.linearity(), 100 * result.share(train::StageKind::kSparse),
      100 * result.share(train::StageKind::kDense), 100 * result.waiting_share());
  print_result(
      "links      {:.1f} MB a rank and step inside machines, {:.1f} MB a machine between them\n",
      result.local_bytes() * 1e-6, result.nic_bytes() * 1e-6);
  print_links("inside machines", result.ports,
              [](std::size_t rank) { return "rank " + std::to_string(rank); });
  print_links("between them", result.nics,
              [&](std::size_t nic) { return name_of_nic(result, nic); });
  print_result("{:<32}{:>12}{:>22}{:>12}\n", "stage, ms of a step", "exposed", "of it for others",
               "hidden");
  for (const plan::StageSeconds& stage : result.stages) {
    print_result("{:<32}{:>12.3f}{:>22.3f}{:>12.3f}\n", stage.name, 1e3 * stage.exposed,
                 1e3 * stage.waiting, 1e3 * stage.hidden);
  }
}

void print_data(const plan::Histories& histories, const plan::PlannedFeatures& features) {
  print_result("data       {}\n", histories.text());
  if (!features.empty()) print_result("features   {}\n", features.text());
}

std::unique_ptr<plan::Histories> histories_for(const run::Config& config,
                                               const PlanCommand& command, int steps) {
  const auto tokens = static_cast<double>(std::max(config.train.tokens, config.data.max_length));
  return plan::open_histories(
      command.data,
      {.config = config, .least_tokens = (steps + 1.0) * command.cluster.ranks() * tokens});
}

namespace {

constexpr int kMostSteps = 10'000;

double seconds_from(std::int64_t begin_ns) {
  return static_cast<double>(Trace::now_ns() - begin_ns) * 1e-9;
}

bool is_disturbed(const plan::Disturbances& d) {
  return d.slow_rank != -1 || d.slow_factor != 1 || d.slow_link.node != -1 ||
         d.slow_link.factor != 1 || d.jitter != 0;
}

void check_disturbances(const plan::Disturbances& d, int ranks) {
  check_usage((d.slow_rank == -1) == (d.slow_factor == 1),
              "--slow-rank and --slow-factor go together: which rank, and how many times as long");
  check_usage(d.slow_rank >= -1 && d.slow_rank < ranks, "--slow-rank ", d.slow_rank, " of ", ranks,
              " ranks, which are counted from 0");
  check_usage(d.slow_factor > 0 && d.slow_factor <= 1e6, "--slow-factor ", d.slow_factor,
              "; wanted: a number above 0, at most a million");
  check_usage((d.slow_link.node == -1) == (d.slow_link.factor == 1),
              "--slow-node and --slow-link go together: which machine, and what share of its "
              "bandwidth is left");
  check_usage(d.slow_link.factor > 1e-6 && d.slow_link.factor <= 1, "--slow-link ",
              d.slow_link.factor, "; wanted: a share of the bandwidth, above 0 and at most 1");
  check_usage(d.jitter >= 0 && d.jitter <= 1, "--jitter ", d.jitter,
              "; wanted: a share from 0 to 1");
}

// How many rows there are for a relay to merge, of the second step, which has neighbours.
void print_merged(const std::vector<plan::StepRoutes>& routes, const plan::SimulationSetup& setup) {
  const auto sum_of = [](const std::vector<std::int32_t>& counts) {
    return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  };
  const auto ranks = static_cast<double>(setup.nodes.size());
  const double machines = ranks / setup.machine_ranks;
  const auto print = [&](const char* which, const plan::RouteCounts& counts) {
    const double asked = sum_of(counts.asked), merged = sum_of(counts.merged);
    print_result("{:<11}{} distinct a rank, {} a machine: {:.2f} times fewer than its ranks have\n",
                 which, grouped_text(std::llround(asked / ranks)),
                 grouped_text(std::llround(merged / machines)), asked / merged);
  };
  print("rows", routes[1].all);
  print("  again", routes[1].next_reads);
}

void run_simulation(const run::Config& config, const PlanCommand& command) {
  plan::check_plannable(config, command.cluster);
  check_disturbances(command.disturbances, command.cluster.ranks());
  const int steps =
      command.steps + (run::schedule_of(config, command.cluster.ranks()) == "serial" ? 2 : 3);
  const std::int64_t start = Trace::now_ns();
  const Context ctx;
  const auto histories = histories_for(config, command, steps);
  const plan::PlannedFeatures features(config, *histories);
  plan::SimulationSetup setup = plan::setup_of(config, command.cluster, &features);
  setup.disturbances = command.disturbances;
  setup.disturbances.seed = static_cast<std::uint64_t>(config.run.seed);
  const int ranks = command.cluster.ranks();
  if (!command.trace.empty()) setup.traced = command.trace_ranks;
  for (const int rank : setup.traced) {
    check_usage(rank >= 0 && rank < ranks, "--trace-ranks names rank ", rank, " of ", ranks,
                "; ranks are counted from 0");
  }
  const plan::DrawnSteps drawn = plan::draw_steps(ctx, config, *histories, ranks, steps);
  const double draw_seconds = seconds_from(start);
  const std::int64_t began = Trace::now_ns();
  const std::clock_t began_clock = std::clock();  // of all threads
  const std::vector<plan::StepRoutes> routes =
      plan::route_steps(ctx,
                        {.topology = setup.topology,
                         .placement = embedding::placement_from_name(config.dist.placement),
                         .rows = histories->num_items(),
                         .feature_rows = features.table_rows(),
                         .machine_ranks = setup.machine_ranks},
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
               command.cluster.ranks_of_node(), setup.gpu.name, setup.network.name,
               setup.topology.group_size);
  print_data(*histories, features);
  if (setup.machine_ranks > 0) print_merged(routes, setup);
  print_simulation(result, setup);
  print_result(
      "simulated  {} steps; drawn in {:.2f} s (sharing out {:.1f} ms a step, {:.1f} ns an id), "
      "routed in {:.2f} s, timed in {:.2f} s ({:.2f} s of processor time)\n",
      drawn.steps.size(), draw_seconds, plan_ms,
      1e9 * drawn.id_seconds / static_cast<double>(drawn.ids_marked), route_seconds,
      simulation_seconds - route_seconds, processor_seconds);
  if (!command.trace.empty()) plan::write_trace(command.trace, result);
  if (!command.json.empty()) {
    nlohmann::ordered_json json = json_of(result, setup);
    json["links"] = links_json(result);
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
      ->check(is_from_to(1, plan::kMostRanks))
      ->capture_default_str();
  command->add_option("--gpus", cluster.gpus, "Devices of a machine, a rank each")
      ->check(is_from_to(1, plan::kMostRanks))
      ->capture_default_str();
  command->add_option("--sharing", cluster.sharing, "Ranks a device has, staged through the host")
      ->check(is_from_to(1, plan::kMostRanks))
      ->capture_default_str();
  Option* ranks = command->add_option("--ranks", options->ranks,
                                      "In place of --nodes: a multiple of --gpus, or fewer");
  ranks->check(is_from_to(1, plan::kMostRanks));
  command->add_option("--gpu", cluster.gpu, "h200, h100, b200, 910b or the file of a description")
      ->capture_default_str();
  command
      ->add_option("--network", cluster.network,
                   "ib400x8, roce200, eth25 or the file of a description")
      ->capture_default_str();
  command->add_option(
      "--data", options->data,
      "Store, kuairand27k, movielens, yambda or a CSV file of lengths; default: data.store");
  command->add_flag("--simulate", options->simulate, "The config as it is, instead of a search");
  command->add_option("--steps", options->steps, "Steps to time, after the first")
      ->check(is_from_to(1, kMostSteps))
      ->capture_default_str();
  command->add_flag("--two-hops", cluster.two_hops,
                    "What if rows went inside machines first, merged, then between them; training "
                    "sends them straight to their owners");
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
  command->add_option("--html", options->html,
                      "Also write a page: scaling, a step's timeline, memory, settings");
  command
      ->add_option("--curve-ranks", options->scaling.ranks, "Ranks that the page's curves run over")
      ->check(is_from_to(1, plan::kMostRanks))
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--curve-tokens", options->scaling.tokens,
                   "Tokens a rank has in the curves, at most")
      ->check(is_positive())
      ->capture_default_str();
  command->callback([command, options, ranks] {
    const data::InterruptGuard guard;
    const run::ConfigArguments arguments = config_arguments(*command);
    run::Config config = run::load_config(arguments.path, arguments.overrides);
    PlanCommand plan = *options;
    // What is planned are these devices, wherever the config trains today.
    config.train.device = plan::gpu_description(plan.cluster.gpu).device;
    check_usage(plan.simulate || plan.trace.empty(),
                "--trace is of one setting; add --simulate, which takes the config as it is");
    check_usage(plan.simulate || !is_disturbed(plan.disturbances),
                "--slow-rank, --slow-node and --jitter disturb one setting; add --simulate");
    check_usage(
        !plan.simulate || !(plan.explain || plan.price > 0 || plan.mtbf > 0 || !plan.html.empty()),
        "--explain, --price, --mtbf and --html are of the search; leave out --simulate");
    check_usage(plan.simulate || !plan.cluster.two_hops,
                "--two-hops is no setting that training has; add --simulate");
    if (ranks->given()) {
      check_usage(
          plan.cluster.sharing == 1,
          "--ranks counts ranks with a device each; with --sharing give --nodes and --gpus");
      plan.cluster.gpus = std::min(plan.cluster.gpus, plan.ranks);
      check_usage(plan.ranks % plan.cluster.gpus == 0, "--ranks ", plan.ranks,
                  " is no multiple of --gpus ", plan.cluster.gpus, "; give --nodes and --gpus");
      plan.cluster.nodes = plan.ranks / plan.cluster.gpus;
    }
    if (plan.data.empty()) plan.data = config.data.store;
    if (config.train.accumulate > 1) {
      log::warn(
          "train.accumulate = {}: a plan takes every part of a step for a step of its own, with "
          "its "
          "exchanges and its update; take its figures as those of parts",
          config.train.accumulate);
    }
    check_usage(!plan.data.empty(), "no data to plan with; give --data or data.store");
    plan.simulate ? run_simulation(config, plan) : run_search(config, plan);
  });
  return command;
}

}  // namespace turbogr::apps
