// `turbogr bench rank-step` and `rank-request`: training steps and requests of ranking models in
// published shapes, on generated data.
#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/bench/commands.h"
#include "apps/command_line.h"
#include "bench/ranking_bench.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/version.h"

namespace turbogr::apps {
namespace {

using bench::RankingFigures;
using bench::RankingProblem;
using bench::RankingShape;

struct RankingBenchOptions {
  std::string shape, device = "cuda", dtype = "bf16", table_dtype, json;
  std::int64_t batch = 0, cut = 0, parts = 1, steps = 10, layers = 0;
  std::int64_t history = 6'700, targets = 2'048;  // of a request
  double fill = 0.4, peak_tflops = 0;
  int threads = 0;
  bool recompute = false;
  std::uint64_t seed = 1;
};

RankingShape shape_of(const RankingBenchOptions& options) {
  RankingShape shape = options.shape == "dlrmv4" ? bench::dlrmv4_shape(options.cut)
                                                 : bench::dlrmv3_shape(options.cut);
  if (options.layers > 0) shape.model.layers = options.layers;
  return shape;
}

RankingProblem problem_of(const RankingBenchOptions& options) {
  RankingProblem problem;
  problem.shape = shape_of(options);
  problem.device = options.device == "cuda" ? Device::kCuda : Device::kCpu;
  problem.dtype = dtype_from_name(options.dtype);
  problem.table_dtype = dtype_from_name(options.table_dtype);
  problem.parts = options.parts;
  problem.recompute = options.recompute;
  problem.steps = options.steps;
  problem.threads = options.threads;
  problem.seed = options.seed;
  problem.peak_tflops = options.peak_tflops;
  return problem;
}

void print_figures(const RankingProblem& problem, const RankingFigures& f, double sequences) {
  const auto line = [&](const char* name, double flops) {
    fmt::print("  {:<8} {:8.1f} GFLOP each   {:7.1f} TFLOP/s   {:5.1f} % of {:.3g}\n", name,
               flops / sequences * 1e-9, flops / f.ms * 1e-9,
               100 * flops / f.ms * 1e-9 / f.peak_tflops, f.peak_tflops);
  };
  line("nominal", f.flops.nominal);
  line("real", f.flops.real);
  line("causal", f.flops.causal);
  fmt::print("fill (real / nominal) {:.3f}; the host's own work {:.1f} ms; {} distinct rows\n",
             f.flops.real / f.flops.nominal, f.host_ms, f.distinct_rows);
  std::int64_t rows = 0, whole = 0;
  for (const std::int64_t each : problem.shape.features.table_rows) rows += each;
  for (const std::int64_t each : problem.shape.whole_rows) whole += each;
  fmt::print("{} tables of {} rows ({:.3g} % of the published {}), {:.1f} GiB; {:.1f} GiB in use\n",
             problem.shape.features.table_rows.size(), rows,
             100.0 * static_cast<double>(rows) / static_cast<double>(whole), whole,
             static_cast<double>(f.table_bytes) / (1 << 30),
             static_cast<double>(f.memory_bytes) / (1 << 30));
  for (std::size_t s = 0; s < kSections; ++s) {
    if (f.section_ms[s] == 0) continue;
    fmt::print("  {:<20}{:9.2f} ms\n", name_of(static_cast<Section>(s)), f.section_ms[s]);
  }
}

nlohmann::json row_of(const RankingBenchOptions& options, const RankingProblem& problem,
                      const RankingFigures& f, std::int64_t sequences) {
  nlohmann::json sections;
  for (std::size_t s = 0; s < kSections; ++s) {
    sections[std::string(name_of(static_cast<Section>(s)))] = f.section_ms[s];
  }
  return {{"shape", problem.shape.name},
          {"data", "generated, unofficial"},
          {"version", version()},
          {"commit", commit()},
          {"device", options.device},
          {"device_name", device_name()},
          {"dtype", options.dtype},
          {"table_dtype", options.table_dtype},
          {"table_rows", problem.shape.features.table_rows},
          {"published_rows", problem.shape.whole_rows},
          {"table_bytes", f.table_bytes},
          {"layers", problem.shape.model.layers},
          {"batch", sequences},
          {"parts", problem.parts},
          {"recompute", problem.recompute},
          {"tokens", f.tokens},
          {"distinct_rows", f.distinct_rows},
          {"ms", f.ms},
          {"host_ms", f.host_ms},
          {"per_s", static_cast<double>(sequences) / f.ms * 1e3},
          {"gflop_nominal", f.flops.nominal * 1e-9},
          {"gflop_real", f.flops.real * 1e-9},
          {"gflop_causal", f.flops.causal * 1e-9},
          {"peak_tflops", f.peak_tflops},
          {"memory_bytes", f.memory_bytes},
          {"loss", f.loss},
          {"small", f.small},
          {"small_cpu", f.small_cpu},
          {"section_ms", sections}};
}

void write_row(const std::string& path, const nlohmann::json& row) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << row.dump(2) << "\n";
  TGR_CHECK(file.good(), "cannot write '", path, "'");
}

void run_rank_step(const RankingBenchOptions& options) {
  RankingProblem problem = problem_of(options);
  problem.lengths = bench::filled_lengths(problem.shape, options.batch, options.fill);
  const RankingFigures f = bench::measure_ranking_step(problem);
  fmt::print(
      "{} shape, generated data, unofficial: {} samples, {} tokens, in {:.2f} ms on {}: "
      "{:.0f} samples/s; loss {:.4f}\n",
      problem.shape.name, options.batch, f.tokens, f.ms, options.device,
      static_cast<double>(options.batch) / f.ms * 1e3, f.loss);
  print_figures(problem, f, static_cast<double>(options.batch));
  write_row(options.json, row_of(options, problem, f, options.batch));
}

void run_rank_request(const RankingBenchOptions& options) {
  RankingProblem problem = problem_of(options);
  const auto requests = static_cast<std::size_t>(options.batch);
  problem.lengths.history.assign(requests, options.history);
  problem.lengths.targets.assign(requests, options.targets);
  const RankingFigures f = bench::measure_ranking_request(problem);
  fmt::print(
      "{} shape, generated data, unofficial: {} requests of {} + {}, in {:.2f} ms on {}: "
      "{:.0f} requests/s\n",
      problem.shape.name, requests, options.history, options.targets, f.ms, options.device,
      static_cast<double>(requests) / f.ms * 1e3);
  print_figures(problem, f, static_cast<double>(requests));
  write_row(options.json, row_of(options, problem, f, options.batch));
}

void add_common(Command& command, RankingBenchOptions& options) {
  command.add_option("--shape", options.shape, "dlrmv4 or dlrmv3")
      ->check(is_one_of({"dlrmv4", "dlrmv3"}))
      ->capture_default_str();
  command.add_option("--device", options.device, "cpu or cuda")
      ->check(is_one_of({"cpu", "cuda"}))
      ->capture_default_str();
  command.add_option("--dtype", options.dtype, "of the model: f32 or bf16")
      ->check(is_one_of({"f32", "bf16"}))
      ->capture_default_str();
  command.add_option("--table-dtype", options.table_dtype, "of the tables: f32 or bf16")
      ->check(is_one_of({"f32", "bf16"}))
      ->capture_default_str();
  command.add_option("--cut", options.cut, "tables have 1 / cut of the published rows")
      ->check(is_positive())
      ->capture_default_str();
  command.add_option("--layers", options.layers, "instead of the shape's");
  command.add_option("--steps", options.steps, "to time")
      ->check(is_positive())
      ->capture_default_str();
  command.add_option("--threads", options.threads, "of the host; 0: one a core")
      ->capture_default_str();
  command.add_option("--peak-tflops", options.peak_tflops, "0: the device's")
      ->capture_default_str();
  command.add_option("--seed", options.seed, "of batches and weights")->capture_default_str();
  command.add_option("--json", options.json, "write the figures there");
}

}  // namespace

void add_bench_rank_step(Command& bench) {
  auto options = std::make_shared<RankingBenchOptions>();
  options->shape = "dlrmv4";
  options->table_dtype = "f32";
  options->batch = 1024;
  options->cut = 16;
  options->parts = 4;
  Command* command =
      bench.add_subcommand("rank-step", "Training steps of a ranking model of a published shape");
  add_common(*command, *options);
  command->add_option("--batch", options->batch, "samples a step")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--parts", options->parts, "a batch goes through the model in so many")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--fill", options->fill, "real FLOPs over nominal, by the lengths")
      ->capture_default_str();
  command->add_flag("--recompute", options->recompute, "make layers' activations again");
  command->callback([options] { run_rank_step(*options); });
}

void add_bench_rank_request(Command& bench) {
  auto options = std::make_shared<RankingBenchOptions>();
  options->shape = "dlrmv3";
  options->table_dtype = "bf16";
  options->batch = 8;
  options->cut = 32;
  Command* command =
      bench.add_subcommand("rank-request", "Requests to a ranking model, forward alone");
  add_common(*command, *options);
  command->add_option("--batch", options->batch, "requests at once")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--history", options->history, "events of a request")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--targets", options->targets, "candidates of a request")
      ->check(is_positive())
      ->capture_default_str();
  command->callback([options] { run_rank_request(*options); });
}

}  // namespace turbogr::apps
