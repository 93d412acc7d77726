// The simulated cluster: links, routes against the real tables', schedules, and what it says of
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/philox.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/route.h"
#include "turbogr/embedding/sharded_table.h"
#include "turbogr/plan/cluster.h"
#include "turbogr/plan/histories.h"
#include "turbogr/plan/simulator.h"
#include "turbogr/plan/stage_program.h"
#include "turbogr/plan/step_batches.h"
#include "turbogr/plan/step_routes.h"
#include "turbogr/run/config.h"

namespace turbogr::plan {
namespace {

using embedding::Lane;
using embedding::Part;
using test::has;
using test::message_of;

run::Config small_config() {
  return run::parse_config(R"(
[data]
store = "none"
max_length = 64
[model]
layers = 3
width = 32
heads = 2
[train]
tokens = 512
device = "cuda"
dtype = "bf16"
schedule = "exact_prefetch"
[negatives]
count = 64
set = "batch"
[embedding]
optimiser = "adagrad"
)",
                           "small.toml");
}

NetworkDescription plain_network(double nics) {
  NetworkDescription network = network_description("ib400x8");
  network.nics.value = nics;
  network.nic_gbs.value = 1;
  network.net_us.value = 10;
  network.message_us.value = 1;
  return network;
}

TEST(PlanNetwork, CarriesAMessageInItsLatencyAndItsBytes) {
  Network network(gpu_description("h200"), plain_network(1), {0, 1});
  EXPECT_NEAR(network.send(0, 1, 1'000'000, 5, Memory::kDevice), 5 + 10e-6 + 1e-3, 1e-12);
  EXPECT_EQ(network.send(1, 1, 1'000'000, 5, Memory::kDevice), 5);  // to itself
  EXPECT_NEAR(network.send(1, 0, 1, 9, Memory::kDevice), 9 + 10e-6 + 1e-6, 1e-12);
  EXPECT_EQ(network.nics()[0].out_bytes, 1e6);
  EXPECT_EQ(network.nics()[1].in_bytes, 1e6);
  EXPECT_NEAR(network.nics()[1].in_seconds, 1e-3, 1e-12);
}

TEST(PlanNetwork, QueuesManyBeforeOneAndRanksBeforeTheirNic) {
  const GpuDescription gpu = gpu_description("h200");
  Network incast(gpu, plain_network(1), {0, 1, 2, 3});
  double last = 0;
  for (int from = 1; from < 4; ++from) {
    last = std::max(last, incast.send(from, 0, 1'000'000, 0, Memory::kDevice));
  }
  EXPECT_NEAR(last, 3e-3 + 10e-6, 1e-9);
  Network shared(gpu, plain_network(1), {0, 0, 1, 1});
  Network own(gpu, plain_network(2), {0, 0, 1, 1});
  for (Network* network : {&shared, &own}) {
    last = std::max(network->send(0, 2, 1'000'000, 0, Memory::kDevice),
                    network->send(1, 3, 1'000'000, 0, Memory::kDevice));
    EXPECT_NEAR(last, (network == &shared ? 2e-3 : 1e-3) + 10e-6, 1e-9);
  }
  Network slow(gpu, plain_network(1), {0, 1}, {.node = 1, .factor = 0.1});
  EXPECT_NEAR(slow.send(0, 1, 1'000'000, 0, Memory::kDevice), 10e-3 + 10e-6, 1e-9);
}

TEST(PlanNetwork, HostsOfAMachineCopyForEachPairByThemselves) {
  GpuDescription gpu = gpu_description("h200");
  gpu.local_us.value = 10;
  gpu.local_gbs.value = 1;
  NetworkDescription description = plain_network(1);
  description.host_gbs.value = 1;
  description.host_sum_gbs.value = 4;
  Network network(gpu, description, {0, 0, 0, 0});
  for (int from = 1; from < 4; ++from) {
    EXPECT_NEAR(network.send(from, 0, 1'000'000, 0, Memory::kHost), 1e-3 + 10e-6, 1e-9);
    EXPECT_NEAR(network.send(from, 0, 1'000'000, 0, Memory::kDevice), from * 1e-3 + 10e-6, 1e-9);
  }
  // A quarter to everybody, all four added up, and the sums to everybody.
  EXPECT_NEAR(network.all_reduce_hosts(4e6, 1, 5), 5 + 2 * (1e-3 + 10e-6) + 1e-3, 1e-9);
  EXPECT_NEAR(network.all_reduce_hosts(4e6, 2, 5), 5 + 2 * 1e-3 + 4 * 10e-6 + 1e-3, 1e-9);
}

// Even exchanges are added up without their messages: the sums are those of the messages.
TEST(PlanNetwork, AddsUpEvenExchangesAsTheirMessages) {
  const std::vector<int> members = {0, 1, 2, 3, 4, 5};
  const std::vector<int> nodes = {0, 0, 1, 1, 2, 2};
  Network one(gpu_description("h200"), plain_network(1), nodes);
  Network other(gpu_description("h200"), plain_network(1), nodes);
  std::vector<double> sums(6, 0.5), listed(6, 0.5);
  one.all_to_all_even(members, 1e6, sums, Memory::kDevice);
  const std::vector<std::int64_t> bytes(6, 1'000'000);
  other.run_round(
      members, [&](std::size_t) { return dist::all_to_all_round(bytes, bytes); }, listed,
      Memory::kDevice);
  EXPECT_NEAR(*std::max_element(sums.begin(), sums.end()),
              *std::max_element(listed.begin(), listed.end()), 1e-9);
  for (const bool nics : {false, true}) {
    const LinkUse& sum = (nics ? one.nics() : one.ports())[1];
    const LinkUse& list = (nics ? other.nics() : other.ports())[1];
    EXPECT_EQ(sum.out_bytes, list.out_bytes);
    EXPECT_EQ(sum.in_bytes, list.in_bytes);
    EXPECT_NEAR(sum.out_seconds, list.out_seconds, 1e-12);
    EXPECT_NEAR(sum.in_seconds, list.in_seconds, 1e-12);
  }
}

// Two played hosts of two ranks, 1 Gbit/s between them and 10 inside
// (bench/results/dist_epyc-2-cores_2026-11-15.md, medians of the nearly quiet machine): every rank
// has 13.6 MB of rows and as much of gradients, f32, for all four; gradients as bf16 are half of
// it.
TEST(PlanNetwork, PredictsMeasuredExchangesBetweenPlayedHosts) {
  GpuDescription host = gpu_description("h200");
  host.local_gbs.value = 1.25 * 0.94;  // less the headers of TCP
  NetworkDescription network = plain_network(1);
  network.nic_gbs.value = 0.125 * 0.94;
  const std::vector<int> everybody = {0, 1, 2, 3};
  const auto exchange_ms = [&](const std::vector<double>& megabytes) {
    Network links(host, network, {0, 0, 1, 1});
    std::vector<double> times(4, 0);
    for (const double each : megabytes) {  // a quarter of it a rank's own
      const std::vector<std::int64_t> part(4, static_cast<std::int64_t>(each * 1e6 / 3));
      links.run_round(
          everybody, [&](std::size_t) { return dist::all_to_all_round(part, part); }, times,
          Memory::kDevice);
    }
    return 1e3 * *std::max_element(times.begin(), times.end());
  };
  EXPECT_NEAR(exchange_ms({0.2, 13.6, 13.6}) / 306.9, 1, 0.07);
  EXPECT_NEAR(exchange_ms({0.2, 13.6, 6.8}) / 226.6, 1, 0.07);
}

// What real tables find by exchanging ids.
TEST(PlanRoutes, CountWhatShardedTablesExchange) {
  const std::vector<int> nodes = {0, 0, 1, 1, 2, 2};
  const std::int64_t rows = 301;
  for (const int group_size : {2, 6}) {
    const LayoutOptions layout = {.topology = dist::make_topology(nodes, group_size),
                                  .placement = embedding::Placement::kHash,
                                  .rows = rows};
    std::vector<StepBatch> steps(2);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      StepBatch& batch = steps[step];
      batch.bounds.assign(7, 0);
      batch.id_bounds.assign(1, 0);
      for (int rank = 0; rank < 6; ++rank) {
        PhiloxStream random(step, static_cast<std::uint64_t>(rank));
        std::vector<std::uint32_t> ids;
        for (std::uint32_t id = 0; id < rows; ++id) {
          if (random.below(4) == 0) ids.push_back(id);
        }
        batch.ids.insert(batch.ids.end(), ids.begin(), ids.end());
        batch.id_bounds.push_back(std::ssize(batch.ids));
      }
    }
    const Context ctx({.threads = 2});
    const std::vector<StepRoutes> routes = route_steps(ctx, layout, steps);
    std::mutex mutex;
    dist::run_threads(
        6,
        [&](dist::Communicator& world) {
          const Context own({.threads = 1});
          const dist::SparseGroups groups = dist::make_sparse_groups(world, layout.topology);
          embedding::ShardedTable table({.rows = rows, .width = 4, .placement = layout.placement},
                                        groups.group->rank(), groups.group->size());
          const embedding::TableCommunicators communicators = {groups.group.get(),
                                                               groups.replicas.get()};
          std::vector<embedding::StepRoute> routed(2);
          for (std::size_t step = 0; step < 2; ++step) {
            const auto ids32 = steps[step].ids_of(world.rank());
            const std::vector<std::int64_t> ids(ids32.begin(), ids32.end());
            const View<const std::int64_t, 1> wanted = {ids.data(), {std::ssize(ids)}};
            route_ids(own, communicators, {&table, 1}, {&wanted, 1}, routed[step]);
          }
          embedding::StepRefresh found_refresh;
          plan_refresh(communicators, {&table, 1}, routed[1], routed[0], found_refresh);
          embedding::StepRoute found_among, found_others;
          split_route(own, communicators, {&table, 1}, routed[0], routed[1], found_among,
                      found_others);
          const std::vector<embedding::Route> real = {routed[0].tables[0], routed[1].tables[0]};
          const embedding::Refresh& refresh = found_refresh.tables[0];
          const embedding::Route& among = found_among.tables[0];
          const std::lock_guard lock(mutex);
          const auto rank = static_cast<std::size_t>(world.rank());
          const auto expect_counts = [&](const std::vector<std::int64_t>& found,
                                         const RouteCounts& planned) {
            const auto asked = planned.asked_by(world.rank());
            EXPECT_TRUE(std::equal(found.begin(), found.end(), asked.begin(), asked.end()));
          };
          for (std::size_t step = 0; step < 2; ++step) {
            expect_counts(real[step].asked_of, routes[step].all);
            EXPECT_EQ(std::ssize(real[step].rows), routes[step].all.owned[rank]);
            EXPECT_EQ(std::ssize(real[step].touched),
                      routes[step].all.touched[static_cast<std::size_t>(groups.group->rank())]);
          }
          expect_counts(refresh.take, routes[1].changed);
          expect_counts(among.asked_of, routes[0].next_reads);
          EXPECT_EQ(std::ssize(among.rows), routes[0].next_reads.owned[rank]);
          EXPECT_EQ(std::ssize(among.touched),
                    routes[0].next_reads.touched[static_cast<std::size_t>(groups.group->rank())]);
        },
        {}, nodes);
  }
}

std::string text_of(const std::vector<StageCall>& calls) {
  std::string text;
  for (const StageCall& call : calls) {
    constexpr const char* kNames[] = {"prepare", "fetch", "forward", "backward", "return",
                                      "sums",    "dense", "rows",    "plan",     "refresh",
                                      "ahead",   "join",  "end"};
    text += (text.empty() ? "" : " ") + std::string(kNames[static_cast<int>(call.act)]) +
            std::to_string(call.step);
    if (call.part == Part::kNextReads) text += "n";
    if (call.part == Part::kRest) text += "r";
  }
  return text;
}

TEST(StageProgram, IsTheOrderOfTheSchedules) {
  const auto program = [](train::StepSchedule schedule, bool clips) {
    return make_program({.order = {schedule, clips, 0}, .steps = 3, .layers = 1});
  };
  using train::StepSchedule;
  EXPECT_EQ(text_of(program(StepSchedule::kSerial, false).computing),
            "prepare0 fetch0 forward0 backward0 return0 sums0 dense0 rows0 end0 "
            "prepare1 fetch1 forward1 backward1 return1 sums1 dense1 rows1 end1");
  const StageProgram exact = program(StepSchedule::kExactPrefetch, false);
  EXPECT_EQ(text_of(exact.computing),
            "prepare0 fetch0 ahead0 forward0 backward0 sums0 dense0 join0 return0n rows0n refresh1 "
            "end0 ahead0 forward1 backward1 sums1 dense1 join0 return1n rows1n refresh2 end1");
  EXPECT_EQ(text_of(exact.ahead), "prepare1 fetch1 plan1 return0r rows0r prepare2 fetch2 plan2");
  const StageProgram late = program(StepSchedule::kSemiAsync, false);
  EXPECT_EQ(text_of(late.ahead), "prepare1 fetch1 return0 rows0 prepare2 fetch2");
  const StageProgram clipped = program(StepSchedule::kSemiAsync, true);
  EXPECT_EQ(text_of(clipped.ahead), "prepare1 fetch1 rows0 prepare2 fetch2");
  EXPECT_EQ(text_of(program(StepSchedule::kOverlap, false).ahead), "prepare1 prepare2");
}

struct Simulated {
  SimulationSetup setup;
  Simulation result;
};

Simulated simulated(run::Config config, const ClusterOptions& cluster,
                    const Disturbances& disturbances = {}) {
  SimulationSetup setup = setup_of(config, cluster);
  setup.disturbances = disturbances;
  const Context ctx({.threads = 2});
  const auto histories = open_histories("movielens", {.config = config, .least_tokens = 0});
  const DrawnSteps drawn = draw_steps(ctx, config, *histories, cluster.ranks(), 5);
  const std::vector<StepRoutes> routes =
      route_steps(ctx, {.topology = setup.topology, .rows = histories->num_items()}, drawn.steps);
  setup.traced = {0};
  Simulation result = simulate(setup, drawn.steps, routes);
  return {std::move(setup), std::move(result)};
}

TEST(PlanSimulator, GivesOneDeviceWhatItComputes) {
  const Simulation alone = simulated(small_config(), {.nodes = 1, .gpus = 1}).result;
  EXPECT_NEAR(alone.linearity(), 1, 1e-9);
  EXPECT_EQ(alone.nic_bytes(), 0);
  EXPECT_EQ(alone.share(train::StageKind::kSparse), 0);
}

TEST(PlanSimulator, RepeatsItselfAndSaysWhoIsSlow) {
  const ClusterOptions cluster = {.nodes = 2, .gpus = 4};
  const Simulation even = simulated(small_config(), cluster).result;
  const Simulation again = simulated(small_config(), cluster).result;
  EXPECT_EQ(even.step_seconds, again.step_seconds);
  EXPECT_EQ(even.nic_bytes(), again.nic_bytes());
  EXPECT_GT(even.nic_bytes(), 0);
  EXPECT_LT(even.linearity(), 1);
  const Simulation slow =
      simulated(small_config(), cluster, {.slow_rank = 5, .slow_factor = 2}).result;
  EXPECT_GT(slow.step_seconds, 1.5 * even.step_seconds);
  double waiting = 0;
  for (const StageSeconds& stage : slow.stages) waiting += stage.waiting;
  EXPECT_GT(waiting, 0.3 * slow.step_seconds);
  const Simulation jitter = simulated(small_config(), cluster, {.jitter = 0.2}).result;
  EXPECT_GT(jitter.step_seconds, even.step_seconds);
  const Simulation link =
      simulated(small_config(), cluster, {.slow_link = {.node = 0, .factor = 1e-3}}).result;
  EXPECT_GT(link.step_seconds, 1.2 * even.step_seconds);
}

// Every link by itself: what a rank or a machine sends others receive, and means are of these.
TEST(PlanSimulator, CountsTheBytesOfEveryLink) {
  const Simulation result = simulated(small_config(), {.nodes = 2, .gpus = 4}).result;
  ASSERT_EQ(result.ports.size(), 8u);
  ASSERT_EQ(result.nics.size(), 2u * 8);
  for (const std::vector<LinkUse>* const links : {&result.ports, &result.nics}) {
    double out = 0, in = 0;
    for (const LinkUse& link : *links) {
      out += link.out_bytes;
      in += link.in_bytes;
      EXPECT_LE(link.seconds(), result.step_seconds * (1 + 1e-9));
    }
    EXPECT_GT(out, 0);
    EXPECT_NEAR(in / out, 1, 1e-9);
    EXPECT_NEAR(out, links == &result.ports ? 8 * result.local_bytes() : 2 * result.nic_bytes(),
                1e-6 * out);
  }
  // Four ranks on eight NICs: every other half is nobody's.
  EXPECT_EQ(name_of_nic(result, 12), "NIC 4 of machine 1");
  for (const std::size_t nic : {4u, 12u}) EXPECT_EQ(result.nics[nic].bytes(), 0);
  for (const std::size_t nic : {3u, 11u}) EXPECT_GT(result.nics[nic].bytes(), 0);
}

TEST(PlanSimulator, RanksThatShareADeviceTakeTurns) {
  const Simulation own = simulated(small_config(), {.nodes = 1, .gpus = 2}).result;
  const Simulation shared = simulated(small_config(), {.nodes = 1, .gpus = 1, .sharing = 2}).result;
  EXPECT_GT(shared.step_seconds, own.step_seconds + 0.9 * own.compute_seconds);
  EXPECT_EQ(shared.tokens, own.tokens);
}

TEST(PlanSimulator, ACpusThreadsDoWhatIsBesideAStepToo) {
  auto config = small_config();
  config.train.device = "cpu";
  config.train.schedule = "overlap";
  config.negatives.count = 100'000;  // drawn beside the step before
  const Simulated two = simulated(config, {.nodes = 1, .gpus = 2});
  double drawing = 0;
  for (const StageSeconds& stage : two.result.stages) {
    if (stage.name == train::stages::kDraw.name) drawing += stage.hidden;
  }
  EXPECT_GT(drawing, 1e-3);
  EXPECT_GT(two.result.step_seconds, two.result.compute_seconds + 0.9 * drawing);
}

TEST(PlanSimulator, SchedulesHideWhatTheyPromise) {
  run::Config config = small_config();
  const ClusterOptions cluster = {.nodes = 2, .gpus = 2, .gpu = "h200", .network = "eth25"};
  double before = 1e9;
  for (const char* schedule : {"serial", "overlap", "semi_async"}) {
    config.train.schedule = schedule;
    const Simulation result = simulated(config, cluster).result;
    EXPECT_LT(result.step_seconds, before) << schedule;
    before = result.step_seconds;
  }
}

TEST(PlanSimulator, WritesATraceOfChosenRanks) {
  const Simulation result = simulated(small_config(), {.nodes = 2, .gpus = 2}).result;
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "trace.json").string();
  write_trace(path, result);
  const std::string text = read_file(path);
  EXPECT_TRUE(has(text, "forward and backward"));
  EXPECT_TRUE(has(text, "next step"));
}

TEST(PlanCluster, RefusesWhatItCannotPlan) {
  run::Config config = small_config();
  EXPECT_TRUE(has(message_of([&] { setup_of(config, {.nodes = 0}); }),
                  "--nodes 0 with --gpus 8 and --sharing 1: plans go from 1 to 65536 ranks"));
  config.task = "ranking";
  EXPECT_TRUE(has(message_of([&] { setup_of(config, {.nodes = 1}); }), "retrieval task"));
}

TEST(PlanMachines, NameTheSourceOfEveryFigure) {
  for (const std::string& name : gpu_names()) {
    const GpuDescription gpu = gpu_description(name);
    for (const NamedFigure& each : figures_of(gpu)) {
      EXPECT_FALSE(each.figure->source.empty()) << name << ' ' << each.key;
    }
  }
  EXPECT_EQ(gpu_names(), (std::vector<std::string>{"910b", "b200", "h100", "h200"}));
  EXPECT_EQ(network_names(), (std::vector<std::string>{"eth25", "ib400x8", "roce200"}));
  EXPECT_TRUE(has(message_of([] { gpu_description("h900"); }), "h100"));
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "net.json").string();
  replace_file(path, R"({"what": "network", "nics": {"value": 1, "source": "a guess"}})");
  EXPECT_TRUE(has(message_of([&] { network_description(path); }), "measured:"));
  replace_file(path, R"({"what": "network", "speed": {"value": 1, "source": "measured: x"}})");
  EXPECT_TRUE(has(message_of([&] { network_description(path); }), "unknown key 'speed'"));
  replace_file(path, R"({"what": "network", "nics": {"value": 1, "source": "measured: x"}})");
  EXPECT_TRUE(has(message_of([&] { network_description(path); }), "has no 'nic_gbs'"));
  EXPECT_TRUE(has(message_of([&] { gpu_description(path); }), "does not describe a gpu"));
}

}  // namespace
}  // namespace turbogr::plan
