// `turbogr bench exchange`, under mpirun: what the rows of a step cost on the wire, for a layout.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
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
#include "turbogr/embedding/sharded_rows.h"

namespace turbogr::apps {
namespace {

struct ExchangeBench {
  std::int64_t tables = 1;
  std::int64_t rows = 1'000'000;
  std::int64_t width = 128;
  std::int64_t tokens = 4096;
  std::int64_t negatives = 8192;
  int group = 0;
  int ranks_per_node = 0;
  int steps = 10;
  std::string rows_wire = "f32";
  std::string gradients_wire = "f32";
  std::string json;
};

// Items as popular as KuaiRand's (1 % of them take 44 % of events), and one set of negatives for
// all ranks.
void mark_ids(const Context& ctx, const ExchangeBench& bench, std::int64_t table, int rank,
              int step, std::vector<std::int64_t>& ids, embedding::TouchedRows& touched) {
  constexpr double kSkew = 5.6;
  ids.clear();
  const auto site = static_cast<std::uint64_t>((table << 32) + step);
  PhiloxStream own(static_cast<std::uint64_t>(rank + 3), site), shared(2, site);
  const auto rows = static_cast<double>(bench.rows);
  for (std::int64_t i = 0; i < bench.tokens; ++i) {
    ids.push_back(static_cast<std::int64_t>(rows * std::pow(own.uniform(), kSkew)));
  }
  for (std::int64_t i = 0; i < bench.negatives; ++i) {
    ids.push_back(static_cast<std::int64_t>(shared.below(static_cast<std::uint64_t>(bench.rows))));
  }
  touched.clear();
  touched.mark(ctx, {ids.data(), {std::ssize(ids)}});
  touched.number(ctx);
}

// Of a step, the slowest rank's: the middle and the least over the steps. A busy machine shows in
// the first.
struct Cost {
  struct Figure {
    double median, least;
  };
  Figure group_ms, replicas_ms, both_ms;  // spent waiting
  Figure step_ms;                         // from the ids to the summed gradients
  Figure number_ms, route_ms;             // the host's: drawing and numbering ids; who owns them
  Figure update_ms;                       // of the rows they belong to
  double group_mb, replicas_mb;
  double collectives;
};

Cost::Figure figure_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front()};
}

Cost measure(const ExchangeBench& bench, dist::Communicator& launched) {
  const Context ctx({.threads = 1});
  bench::TimedCommunicator world(launched);
  const std::vector<embedding::TableOptions> tables(
      static_cast<std::size_t>(bench.tables), {.rows = bench.rows,
                                               .width = bench.width,
                                               .optimiser = embedding::SparseOptimiser::kAdaGrad});
  embedding::ShardedRows<float> source(
      ctx, ctx, world, tables, Device::kCpu,
      {.topology =
           dist::make_topology(dist::play_nodes(world.nodes(), bench.ranks_per_node), bench.group),
       .row_wire = dtype_from_name(bench.rows_wire),
       .gradient_wire = dtype_from_name(bench.gradients_wire)});
  source.initialise(ctx);
  const std::vector<std::int64_t> most(tables.size(), bench.tokens + bench.negatives);
  const std::unique_ptr<embedding::RowRequest> request = source.make_request(ctx, most);
  const std::vector<AdamWSettings> settings(tables.size(), {.rate = 1e-3});
  std::vector<embedding::TouchedRows> touched(tables.size(), embedding::TouchedRows(bench.rows));
  std::vector<std::vector<float>> memory(tables.size());
  std::vector<std::int64_t> ids;
  std::vector<double> group_ms, replicas_ms, both_ms, step_ms, number_ms, route_ms, update_ms,
      squares(tables.size());
  double group_bytes = 0, replicas_bytes = 0, collectives = 0;
  for (int step = -1; step < bench.steps; ++step) {  // the first warms memory and connections
    std::vector<embedding::StepRows<float>> rows(tables.size());
    std::vector<Rows<const float>> gradients;
    std::int64_t numbering_ns = 0;
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const std::int64_t marking_ns = Trace::now_ns();
      mark_ids(ctx, bench, static_cast<std::int64_t>(t), world.rank(), step + 1, ids, touched[t]);
      numbering_ns += Trace::now_ns() - marking_ns;
      const std::int64_t count = touched[t].ids().shape[0];
      memory[t].resize(static_cast<std::size_t>(count * bench.width));
      rows[t].rows = {memory[t].data(), count, bench.width, bench.width};
      gradients.push_back(rows[t].rows);
    }
    launched.barrier();
    world.reset();
    const std::int64_t begin_ns = Trace::now_ns();
    source.prepare(ctx, embedding::Lane::kThis, {.step = step + 1, .tables = touched}, *request);
    const auto route_ns = static_cast<double>(Trace::now_ns() - begin_ns);
    source.fetch(ctx, embedding::Lane::kThis, *request, rows);
    source.return_gradients(ctx, embedding::Lane::kThis, *request, embedding::Part::kAll, gradients,
                            squares.data());
    const auto step_ns = static_cast<double>(Trace::now_ns() - begin_ns);
    const bench::CommunicationTotals group = world.totals("group"),
                                     replicas = world.totals("replicas");
    const std::int64_t update_ns = Trace::now_ns();
    source.update(ctx, embedding::Lane::kThis, *request, embedding::Part::kAll, settings, nullptr);
    if (step < 0) continue;
    update_ms.push_back(static_cast<double>(Trace::now_ns() - update_ns) * 1e-6);
    step_ms.push_back(step_ns * 1e-6);
    number_ms.push_back(static_cast<double>(numbering_ns) * 1e-6);
    route_ms.push_back(route_ns * 1e-6);
    group_ms.push_back(group.seconds * 1e3);
    replicas_ms.push_back(replicas.seconds * 1e3);
    both_ms.push_back((group.seconds + replicas.seconds) * 1e3);
    group_bytes += static_cast<double>(group.bytes);
    replicas_bytes += static_cast<double>(replicas.bytes);
    collectives += static_cast<double>(group.collectives + replicas.collectives);
  }
  for (std::vector<double>* each :
       {&group_ms, &replicas_ms, &both_ms, &step_ms, &number_ms, &route_ms, &update_ms}) {
    launched.all_reduce(*each, dist::Reduce::kMax);
  }
  const double steps = bench.steps;
  return {figure_of(group_ms),  figure_of(replicas_ms),     figure_of(both_ms),
          figure_of(step_ms),   figure_of(number_ms),       figure_of(route_ms),
          figure_of(update_ms), group_bytes / steps * 1e-6, replicas_bytes / steps * 1e-6,
          collectives / steps};
}

void run_bench_exchange(const ExchangeBench& bench, dist::Communicator& world) {
  const Cost cost = measure(bench, world);
  if (world.rank() != 0) return;
  const dist::Topology topology =
      dist::make_topology(dist::play_nodes(world.nodes(), bench.ranks_per_node), bench.group);
  fmt::print(
      "{} ranks in {} groups of {}: all-to-all {:.1f} ms (best {:.1f}), replicas {:.1f} ({:.1f}), "
      "all {:.1f} ({:.1f}), with packing and sums {:.1f} ({:.1f}), the update of rows {:.1f} "
      "({:.1f}); the host draws and numbers ids in {:.2f} ({:.2f}) and routes them in {:.2f} "
      "({:.2f}); "
      "rank 0 sends {:.2f} + {:.2f} MB a step in {:.0f} collectives\n",
      world.size(), topology.num_groups(), topology.group_size, cost.group_ms.median,
      cost.group_ms.least, cost.replicas_ms.median, cost.replicas_ms.least, cost.both_ms.median,
      cost.both_ms.least, cost.step_ms.median, cost.step_ms.least, cost.update_ms.median,
      cost.update_ms.least, cost.number_ms.median, cost.number_ms.least, cost.route_ms.median,
      cost.route_ms.least, cost.group_mb, cost.replicas_mb, cost.collectives);
  if (bench.json.empty()) return;
  const nlohmann::json row = {{"ranks", world.size()},
                              {"group", topology.group_size},
                              {"tables", bench.tables},
                              {"all_to_all_ms", cost.group_ms.median},
                              {"all_to_all_best_ms", cost.group_ms.least},
                              {"replicas_ms", cost.replicas_ms.median},
                              {"all_ms", cost.both_ms.median},
                              {"all_best_ms", cost.both_ms.least},
                              {"step_ms", cost.step_ms.median},
                              {"step_best_ms", cost.step_ms.least},
                              {"number_ms", cost.number_ms.median},
                              {"number_best_ms", cost.number_ms.least},
                              {"route_ms", cost.route_ms.median},
                              {"route_best_ms", cost.route_ms.least},
                              {"update_ms", cost.update_ms.median},
                              {"update_best_ms", cost.update_ms.least},
                              {"all_to_all_mb", cost.group_mb},
                              {"replicas_mb", cost.replicas_mb},
                              {"collectives", cost.collectives}};
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
  command->add_option("--tables", options->tables, "of equal size, each with ids of its own")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--rows", options->rows, "of a table")
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
