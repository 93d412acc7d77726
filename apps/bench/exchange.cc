// `turbogr bench exchange`, under mpirun: what the rows of a step cost on the wire, for a layout.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "apps/bench/commands.h"
#include "apps/command_line.h"
#include "bench/timed_communicator.h"
#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"
#include "turbogr/core/trace.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/dist/topology.h"
#include "turbogr/embedding/sharded_table.h"

namespace turbogr::apps {
namespace {

struct ExchangeBench {
  std::int64_t rows = 1'000'000;
  std::int64_t width = 128;
  std::int64_t tokens = 4096;
  std::int64_t negatives = 8192;
  int group = 0;
  int ranks_per_node = 0;
  int pieces = 4;
  int steps = 10;
  std::string rows_wire = "f32";
  std::string gradients_wire = "f32";
  std::string json;
};

// Items as popular as KuaiRand's (1 % of them take 44 % of events), and one set of negatives for
// all ranks.
std::vector<std::int64_t> ids_of(const ExchangeBench& bench, int rank, int step) {
  constexpr double kSkew = 5.6;
  std::set<std::int64_t> ids;
  PhiloxStream own(1, static_cast<std::uint64_t>(1000 * step + rank + 1));
  PhiloxStream shared(2, static_cast<std::uint64_t>(step));
  const auto rows = static_cast<double>(bench.rows);
  for (std::int64_t i = 0; i < bench.tokens; ++i) {
    ids.insert(static_cast<std::int64_t>(rows * std::pow(own.uniform(), kSkew)));
  }
  for (std::int64_t i = 0; i < bench.negatives; ++i) {
    ids.insert(static_cast<std::int64_t>(shared.below(static_cast<std::uint64_t>(bench.rows))));
  }
  return {ids.begin(), ids.end()};
}

// Of a step, the slowest rank's: the middle and the least over the steps. A busy machine shows in
// the first.
struct Cost {
  struct Figure {
    double median, least;
  };
  Figure group_ms, replicas_ms, both_ms;  // spent waiting
  Figure step_ms;                         // from the ids to the summed gradients
  double group_mb, replicas_mb;
};

Cost::Figure figure_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front()};
}

Cost measure(const ExchangeBench& bench, dist::Communicator& world) {
  const Context ctx({.threads = 1});
  const dist::Topology topology =
      dist::make_topology(dist::play_nodes(world.nodes(), bench.ranks_per_node), bench.group);
  dist::SparseGroups groups = dist::make_sparse_groups(world, topology);
  bench::TimedCommunicator group(*groups.group), replicas(*groups.replicas);
  const embedding::TableCommunicators communicators = {&group, &replicas};
  embedding::ShardedTable table({.rows = bench.rows,
                                 .width = bench.width,
                                 .optimiser = embedding::SparseOptimiser::kAdaGrad,
                                 .row_wire = dtype_from_name(bench.rows_wire),
                                 .gradient_wire = dtype_from_name(bench.gradients_wire),
                                 .pieces = bench.pieces},
                                group.rank(), group.size());
  table.initialise(ctx);
  embedding::Route route;
  std::vector<double> group_ms, replicas_ms, both_ms, step_ms;
  std::vector<float> rows;
  for (int step = -1; step < bench.steps; ++step) {  // the first warms memory and connections
    if (step <= 0) group.bytes = replicas.bytes = 0;
    group.seconds = replicas.seconds = 0;
    const std::vector<std::int64_t> ids = ids_of(bench, world.rank(), step + 1);
    const auto count = static_cast<std::int64_t>(ids.size());
    rows.resize(static_cast<std::size_t>(count * bench.width));
    world.barrier();
    const std::int64_t begin_ns = Trace::now_ns();
    table.route(ctx, communicators, {ids.data(), {count}}, route);
    table.fetch<float>(ctx, communicators, route,
                       Rows<float>(rows.data(), count, bench.width, bench.width));
    table.return_gradients(ctx, communicators, route,
                           Rows<const float>(rows.data(), count, bench.width, bench.width));
    const auto step_ns = static_cast<double>(Trace::now_ns() - begin_ns);
    table.update(ctx, route, {.rate = 1e-3});
    if (step < 0) continue;
    step_ms.push_back(step_ns * 1e-6);
    group_ms.push_back(group.seconds * 1e3);
    replicas_ms.push_back(replicas.seconds * 1e3);
    both_ms.push_back((group.seconds + replicas.seconds) * 1e3);
  }
  for (std::vector<double>* each : {&group_ms, &replicas_ms, &both_ms, &step_ms}) {
    world.all_reduce(*each, dist::Reduce::kMax);
  }
  const double steps = bench.steps * 1e6;
  return {figure_of(group_ms),
          figure_of(replicas_ms),
          figure_of(both_ms),
          figure_of(step_ms),
          static_cast<double>(group.bytes) / steps,
          static_cast<double>(replicas.bytes) / steps};
}

void run_bench_exchange(const ExchangeBench& bench, dist::Communicator& world) {
  const Cost cost = measure(bench, world);
  if (world.rank() != 0) return;
  const dist::Topology topology =
      dist::make_topology(dist::play_nodes(world.nodes(), bench.ranks_per_node), bench.group);
  fmt::print(
      "{} ranks in {} groups of {}: all-to-all {:.1f} ms (best {:.1f}), replicas {:.1f} ({:.1f}), "
      "all {:.1f} ({:.1f}), with packing and sums {:.1f} ({:.1f}); rank 0 sends {:.2f} + {:.2f} MB "
      "a step\n",
      world.size(), topology.num_groups(), topology.group_size, cost.group_ms.median,
      cost.group_ms.least, cost.replicas_ms.median, cost.replicas_ms.least, cost.both_ms.median,
      cost.both_ms.least, cost.step_ms.median, cost.step_ms.least, cost.group_mb, cost.replicas_mb);
  if (bench.json.empty()) return;
  const nlohmann::json row = {{"ranks", world.size()},
                              {"group", topology.group_size},
                              {"all_to_all_ms", cost.group_ms.median},
                              {"all_to_all_best_ms", cost.group_ms.least},
                              {"replicas_ms", cost.replicas_ms.median},
                              {"all_ms", cost.both_ms.median},
                              {"all_best_ms", cost.both_ms.least},
                              {"step_ms", cost.step_ms.median},
                              {"step_best_ms", cost.step_ms.least},
                              {"all_to_all_mb", cost.group_mb},
                              {"replicas_mb", cost.replicas_mb}};
  std::ofstream out(bench.json);
  out << nlohmann::json::array({row}).dump(1) << "\n";
  out.close();
  TGR_CHECK(!out.fail(), "cannot write '", bench.json,
            "'; check that the folder exists and has room");
}

}  // namespace

void add_bench_exchange(Command& bench) {
  auto* command = bench.add_subcommand("exchange", "What item rows cost between ranks (mpirun)");
  auto options = std::make_shared<ExchangeBench>();
  command->add_option("--rows", options->rows, "of the table")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--width", options->width, "of a row")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--tokens", options->tokens, "items a rank and step, by popularity")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--negatives", options->negatives, "in the set that all ranks share")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--group", options->group, "ranks a group; 0: those of a machine")
      ->capture_default_str();
  command->add_option("--ranks-per-node", options->ranks_per_node, "play machines; 0: as they are")
      ->capture_default_str();
  command->add_option("--pieces", options->pieces, "in which gradients return")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--steps", options->steps, "measured")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--rows-wire", options->rows_wire, "f32, bf16 or f16")->capture_default_str();
  command->add_option("--gradients-wire", options->gradients_wire, "f32 or bf16")
      ->capture_default_str();
  command->add_option("--json", options->json, "also write the row to this file");
  command->callback([options] {
    dist::run_as_launched([&](dist::Communicator& world) { run_bench_exchange(*options, world); });
  });
}

}  // namespace turbogr::apps
