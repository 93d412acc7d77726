// `turbogr bench negatives`: what R negatives a token cost in time and memory, by path.
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/bench/commands.h"
#include "apps/command_line.h"
#include "bench/negatives_bench.h"
#include "turbogr/core/check.h"
#include "turbogr/core/version.h"

namespace turbogr::apps {
namespace {

struct BenchNegativesOptions {
  std::string device = "cpu";
  std::string json;
  std::vector<std::int64_t> negatives = {32, 64, 128, 512};
  bench::NegativesProblem problem;
  int threads = 0;
  double seconds = 1;
};

void run_bench_negatives(const BenchNegativesOptions& options) {
  const Context ctx({.device = options.device == "cuda" ? Device::kCuda : Device::kCpu,
                     .threads = options.threads});
  bench::NegativesProblem problem = options.problem;
  problem.memory = bench::available_bytes(ctx) / 10 * 9;
  const char* dtype = ctx.device() == Device::kCuda ? "bf16" : "f32";
  const int threads = ctx.host().threads();
  fmt::print("{} tokens x {} wide, {} items, {}, forward and backward; {}, {} threads; {}\n",
             problem.tokens, problem.width, problem.items, dtype, options.device, threads,
             commit());
  nlohmann::json rows = nlohmann::json::array();
  for (const std::int64_t negatives : options.negatives) {
    problem.negatives = negatives;
    for (const bench::NegativesFigures& f :
         bench::measure_negatives(ctx, problem, options.seconds)) {
      const double mib = static_cast<double>(f.peak_bytes) / (1 << 20);
      if (f.timing) {
        fmt::print("R {:>5}  {:<13} {:>10.2f} ms  {:>9.1f} MiB\n", negatives, f.path, f.timing->ms,
                   mib);
      } else {
        fmt::print("R {:>5}  {:<13} does not fit: {:.1f} MiB\n", negatives, f.path, mib);
      }
      std::fflush(stdout);
      rows.push_back({{"device", options.device},
                      {"path", f.path},
                      {"tokens", problem.tokens},
                      {"width", problem.width},
                      {"items", problem.items},
                      {"negatives", negatives},
                      {"ms", nullptr},
                      {"p10_ms", nullptr},
                      {"p90_ms", nullptr},
                      {"peak_bytes", f.peak_bytes},
                      {"dtype", dtype},
                      {"threads", threads},
                      {"seed", problem.seed},
                      {"commit", commit()}});
      if (f.timing) {
        rows.back()["ms"] = f.timing->ms;
        rows.back()["p10_ms"] = f.timing->p10_ms;
        rows.back()["p90_ms"] = f.timing->p90_ms;
      }
    }
  }
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << rows.dump(1) << "\n";
  file.close();
  TGR_CHECK(!file.fail(), "cannot write '", options.json,
            "'; check that the folder exists and has room");
}

}  // namespace

void add_bench_negatives(Command& bench) {
  auto options = std::make_shared<BenchNegativesOptions>();
  Command* command = bench.add_subcommand(
      "negatives", "The loss with R negatives a token against looking them up into [N, R, D]");
  command->add_option("--device", options->device, "cpu or cuda")
      ->check(is_one_of({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--tokens", options->problem.tokens, "Tokens N")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--negatives", options->negatives, "Values of R")
      ->delimiter(',')
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--width", options->problem.width, "Width D")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--items", options->problem.items, "Distinct items of a step")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads; 0: one a core")
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "Least time for each path")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--seed", options->problem.seed, "Of rows and draws")->capture_default_str();
  command->add_option("--json", options->json, "Also write the rows to this file");
  command->callback([options] { run_bench_negatives(*options); });
}

}  // namespace turbogr::apps
