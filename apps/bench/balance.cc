// `turbogr bench balance`: how long ranks wait for each other, for three ways of filling batches.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/bench/commands.h"
#include "apps/command_line.h"
#include "bench/balance_replay.h"
#include "turbogr/core/check.h"
#include "turbogr/core/simd_level.h"
#include "turbogr/core/version.h"

namespace turbogr::apps {
namespace {

struct BalanceBench {
  std::string lengths = "kuairand27k";
  std::vector<int> ranks = {8, 32, 128};
  bench::ReplayOptions replay;
  std::int64_t width = 1024;
  std::string json;
};

void run_bench_balance(const BalanceBench& options) {
  bench::ReplayOptions replay = options.replay;
  // Of an HSTU layer with H dq = H dv = D: 10 D^2 n in projections, 2 D n (n + 1) in attention.
  const auto width = static_cast<double>(options.width);
  replay.cost = {.per_token = 5 * width + 1, .per_pair = 1};
  const std::vector<std::int64_t> table = bench::length_table(options.lengths);
  fmt::print("{}; turbogr {} ({})\n", cpu_model(), version(), commit());
  fmt::print(
      "lengths {}: {} sequences, capped at {}; {} tokens a rank; cost {:.0f} n + n^2; {} steps\n",
      options.lengths, table.size(), replay.cap, replay.budget, replay.cost.per_token,
      replay.steps);
  fmt::print("{:>5}  {:<12}  {:>12}  {:>11}  {:>9}  {:>9}  {:>9}\n", "ranks", "strategy",
             "waiting mean", "waiting p99", "token gap", "plan ms", "plan max");
  nlohmann::json rows = nlohmann::json::array();
  for (const int ranks : options.ranks) {
    replay.ranks = ranks;
    for (const bench::ReplayResult& result : bench::replay(table, replay)) {
      fmt::print("{:>5}  {:<12}  {:>10.3f} %  {:>9.3f} %  {:>9}  {:>9.3f}  {:>9.3f}\n", ranks,
                 result.strategy, 100 * result.waiting_mean, 100 * result.waiting_p99,
                 result.token_gap, result.plan_ms, result.plan_ms_max);
      rows.push_back({{"ranks", ranks},
                      {"strategy", result.strategy},
                      {"waiting_mean", result.waiting_mean},
                      {"waiting_p99", result.waiting_p99},
                      {"token_gap", result.token_gap},
                      {"plan_ms", result.plan_ms}});
    }
    std::fflush(stdout);
  }
  if (options.json.empty()) return;
  std::ofstream out(options.json);
  out << rows.dump(1) << "\n";
  out.close();
  TGR_CHECK(!out.fail(), "cannot write '", options.json,
            "'; check that the folder exists and has room");
}

}  // namespace

void add_bench_balance(Command& bench) {
  auto* command = bench.add_subcommand("balance", "How long ranks would wait for each other");
  auto options = std::make_shared<BalanceBench>();
  command
      ->add_option("--lengths", options->lengths,
                   "kuairand27k, or a CSV file with a length in its first column")
      ->capture_default_str();
  command->add_option("--ranks", options->ranks, "numbers of ranks, as 8,32,128")
      ->delimiter(',')
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--cap", options->replay.cap, "longest sequence; longer ones are cut")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--budget", options->replay.budget, "tokens a rank")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--steps", options->replay.steps, "steps replayed")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--seed", options->replay.seed, "of the order")->capture_default_str();
  command->add_option("--width", options->width, "of the model, for what a token costs")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--json", options->json, "also write the rows to this file");
  command->callback([options] { run_bench_balance(*options); });
}

}  // namespace turbogr::apps
