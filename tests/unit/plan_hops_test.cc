// Exchanges in two hops in a simulated cluster: what a machine's ranks ask for together, and what
// then goes over which links.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/support/messages.h"
#include "turbogr/core/philox.h"
#include "turbogr/plan/cluster.h"
#include "turbogr/plan/cluster_collectives.h"
#include "turbogr/plan/histories.h"
#include "turbogr/plan/simulator.h"
#include "turbogr/plan/step_batches.h"
#include "turbogr/plan/step_routes.h"

namespace turbogr::plan {
namespace {

using embedding::Lane;
using Way = ClusterCollectives::Way;

constexpr int kRanks = 12;
constexpr std::int64_t kRows = 97;

// Some ranks touch nothing.
StepBatch made_up_step(std::uint64_t seed) {
  StepBatch batch;
  batch.bounds.assign(kRanks + 1, 0);
  batch.id_bounds.assign(1, 0);
  for (int rank = 0; rank < kRanks; ++rank) {
    PhiloxStream random(seed, static_cast<std::uint64_t>(rank));
    for (std::uint32_t id = 0; id < kRows && rank % 5 != 3; ++id) {
      if (random.below(3) == 0) batch.ids.push_back(id);
    }
    batch.id_bounds.push_back(std::ssize(batch.ids));
  }
  return batch;
}

// Groups of `group` places, `machine` of them on each machine.
struct Layout {
  int group, machine;
  LayoutOptions options() const {
    return {
        .topology = dist::make_topology(nodes(), group), .rows = kRows, .machine_ranks = machine};
  }
  std::vector<int> nodes() const {
    std::vector<int> nodes;
    for (int rank = 0; rank < kRanks; ++rank) nodes.push_back(rank / machine);
    return nodes;
  }
};

constexpr Layout kLayouts[] = {{12, 4}, {12, 3}, {12, 6}, {6, 2}, {4, 2}, {12, 1}};

// The distinct ids of a machine's ranks, or those in `of`, that a place owns.
std::int64_t merged(const StepBatch& step, const Layout& layout, int machine, int place,
                    const std::set<std::uint32_t>* of = nullptr) {
  std::set<std::uint32_t> distinct;
  for (int rank = machine * layout.machine; rank < (machine + 1) * layout.machine; ++rank) {
    for (const std::uint32_t id : step.ids_of(rank)) {
      const bool owned = static_cast<int>(id) % layout.group == place;  // dealt round robin
      if (owned && (of == nullptr || of->count(id) > 0)) distinct.insert(id);
    }
  }
  return std::ssize(distinct);
}

TEST(PlanHops, MergesTheIdsOfAMachine) {
  const std::vector<StepBatch> steps = {made_up_step(1), made_up_step(2)};
  const std::set<std::uint32_t> next(steps[1].ids.begin(), steps[1].ids.end());
  const Context ctx({.threads = 2});
  for (const Layout& layout : kLayouts) {
    const std::vector<StepRoutes> routes = route_steps(ctx, layout.options(), steps);
    for (int machine = 0; machine < kRanks / layout.machine; ++machine) {
      const auto m = static_cast<std::size_t>(machine);
      for (int place = 0; place < layout.group; ++place) {
        const auto p = static_cast<std::size_t>(place);
        EXPECT_EQ(routes[0].all.merged_by(m)[p], merged(steps[0], layout, machine, place));
        EXPECT_EQ(routes[0].next_reads.merged_by(m)[p],
                  merged(steps[0], layout, machine, place, &next));
      }
    }
  }
}

TEST(PlanHops, SendARowBetweenMachinesOnceAMachine) {
  const std::vector<StepBatch> steps = {made_up_step(1), made_up_step(2)};
  const Context ctx({.threads = 2});
  for (const Layout& layout : kLayouts) {
    const std::vector<StepRoutes> routes = route_steps(ctx, layout.options(), steps);
    const RouteCounts& counts = routes[0].all;
    SimulationSetup setup;
    setup.gpu = gpu_description("h200");
    setup.network = network_description("ib400x8");
    setup.nodes = layout.nodes();
    setup.topology = layout.options().topology;
    setup.machine_ranks = layout.machine;
    ClusterCollectives collectives(setup);
    for (const Way way : {Way::kToOwners, Way::kFromOwners}) {
      collectives.hop_inside(train::stages::kFetch, Lane::kThis, {counts}, 1, way, Memory::kDevice);
      collectives.hop_between(train::stages::kFetch, Lane::kThis, {counts}, 1, way,
                              Memory::kDevice);
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      const int machine = rank / layout.machine, machines = layout.group / layout.machine;
      const int first = machine / machines * machines;  // of the group
      const int own = rank % layout.group;
      // A relay's share of its machine: owners that have its place in theirs.
      const auto relays_for = [&](std::uint32_t id) {
        return static_cast<int>(id) % layout.group % layout.machine == rank % layout.machine;
      };
      ClusterCollectives::Relayed wanted;
      double inside = 0;  // to and from its relays, and as a relay
      for (int other = machine * layout.machine; other < (machine + 1) * layout.machine; ++other) {
        for (const std::uint32_t id : steps[0].ids_of(other)) {
          wanted.taken += relays_for(id) ? 1 : 0;
          inside += other != rank && relays_for(id) ? 1 : 0;
          inside += other == rank && !relays_for(id) ? 1 : 0;
        }
      }
      for (int place = own % layout.machine; place < layout.group; place += layout.machine) {
        wanted.merged += merged(steps[0], layout, machine, place);
      }
      for (int other = first; other < first + machines; ++other) {
        wanted.requested += merged(steps[0], layout, other, own);
      }
      const ClusterCollectives::Relayed found = collectives.relayed({counts}, rank);
      EXPECT_EQ(found.taken, wanted.taken);
      EXPECT_EQ(found.merged, wanted.merged);
      EXPECT_EQ(found.requested, wanted.requested);
      EXPECT_EQ(collectives.network().ports()[static_cast<std::size_t>(rank)].out_bytes, inside);
      if (rank % layout.machine != 0) continue;
      double between = 0;  // as relays that ask, and as owners that give
      for (int other = first; other < first + machines; ++other) {
        for (int place = 0; place < layout.machine && other != machine; ++place) {
          const auto owner_of = [&](int node) { return (node - first) * layout.machine + place; };
          between += static_cast<double>(merged(steps[0], layout, machine, owner_of(other)) +
                                         merged(steps[0], layout, other, owner_of(machine)));
        }
      }
      const Network& network = collectives.network();
      const std::size_t nics = network.nics_of_node();
      double sent = 0;
      for (std::size_t i = 0; i < nics; ++i) {
        sent += network.nics()[static_cast<std::size_t>(machine) * nics + i].out_bytes;
      }
      EXPECT_EQ(sent, between);
    }
  }
}

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

Simulation simulated(const ClusterOptions& cluster, int group, double message_us) {
  run::Config config = small_config();
  config.dist.group = group;
  SimulationSetup setup = setup_of(config, cluster);
  setup.network.message_us.value = message_us;
  const Context ctx({.threads = 2});
  const auto histories = open_histories("movielens", {.config = config, .least_tokens = 0});
  const DrawnSteps drawn = draw_steps(ctx, config, *histories, cluster.ranks(), 5);
  const std::vector<StepRoutes> routes = route_steps(ctx,
                                                     {.topology = setup.topology,
                                                      .rows = histories->num_items(),
                                                      .machine_ranks = setup.machine_ranks},
                                                     drawn.steps);
  return simulate(setup, drawn.steps, routes);
}

TEST(PlanHops, SparesBytesAndMessagesBetweenMachines) {
  ClusterOptions cluster = {.nodes = 4, .gpus = 8};
  for (const double message_us : {1.0, 200.0}) {
    cluster.two_hops = false;
    const Simulation one = simulated(cluster, 32, message_us);
    cluster.two_hops = true;
    const Simulation two = simulated(cluster, 32, message_us);
    EXPECT_LT(two.nic_bytes(), 0.8 * one.nic_bytes());
    EXPECT_GT(two.local_bytes(), one.local_bytes());
    if (message_us > 100) {
      EXPECT_LT(two.step_seconds, 0.5 * one.step_seconds);
    }
  }
}

TEST(PlanHops, WantRoutesThatWereCountedForThem) {
  SimulationSetup setup = setup_of(small_config(), {.nodes = 2, .gpus = 2, .two_hops = true});
  setup.machine_ranks = 2;
  const std::vector<StepBatch> steps(3);
  const std::vector<StepRoutes> routes(3);
  EXPECT_TRUE(test::has(test::message_of([&] { simulate(setup, steps, routes); }),
                        "the setup's machine_ranks"));
}

TEST(PlanHops, AreOfGroupsThatSpanMachines) {
  ClusterOptions cluster = {.nodes = 3, .gpus = 4, .two_hops = true};
  run::Config config = small_config();
  config.dist.group = 12;
  EXPECT_EQ(setup_of(config, cluster).machine_ranks, 4);
  for (const int inside : {1, 2, 4}) {
    config.dist.group = inside;
    EXPECT_EQ(setup_of(config, cluster).machine_ranks, 0);
  }
  config.dist.group = 6;
  EXPECT_TRUE(test::has(test::message_of([&] { setup_of(config, cluster); }), "multiple of 4"));
  cluster.two_hops = false;
  EXPECT_EQ(setup_of(config, cluster).machine_ranks, 0);
}

}  // namespace
}  // namespace turbogr::plan
