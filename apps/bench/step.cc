// `turbogr bench step`: whole training steps of a config on made-up users.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/bench/commands.h"
#include "apps/command_line.h"
#include "bench/lengths.h"
#include "bench/step_bench.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/version.h"
#include "turbogr/data/length_table.h"

namespace turbogr::apps {
namespace {

struct BenchStepOptions {
  std::string device;
  std::string lengths = "kuairand";
  std::string json;
  std::string trace;
  std::int64_t items = 1'000'000;
  std::int64_t steps = 20;
  std::uint64_t seed = 1;
};

std::string memory_text(std::size_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

nlohmann::json row_of(const std::string& config, const run::Config& resolved,
                      const bench::StepFigures& f) {
  nlohmann::json sections;
  for (std::size_t s = 0; s < kSections; ++s) {
    sections[std::string(name_of(static_cast<Section>(s)))] = f.section_ms[s];
  }
  return {{"config", config},
          {"version", version()},
          {"commit", commit()},
          {"device", resolved.train.device},
          {"device_name", device_name()},
          {"dtype", resolved.train.dtype},
          {"products", resolved.train.products},
          {"bias", resolved.model.bias},
          {"dropout", resolved.model.dropout},
          {"negatives", resolved.negatives.count},
          {"negative_set", resolved.negatives.set},
          {"tokens", f.tokens},
          {"ms", f.ms},
          {"tokens_per_s", static_cast<double>(f.tokens) / f.ms * 1e3},
          {"mfu_causal", f.mfu_causal},
          {"mfu_paper", f.mfu_paper},
          {"peak_tflops", f.peak_tflops},
          {"joules_per_token", f.joules_per_token},
          {"peak_bytes", f.memory_bytes},
          {"loss", f.loss},
          {"small_loss", f.small_loss},
          {"small_loss_cpu", f.small_loss_cpu},
          {"table_memory", resolved.embedding.memory},
          {"link_bytes_to_device", f.link_bytes_to_device},
          {"link_bytes_to_host", f.link_bytes_to_host},
          {"link_gb_per_s",
           {{"to_device", f.link.to_device}, {"to_host", f.link.to_host}, {"both", f.link.both}}},
          {"section_ms", sections}};
}

void run_bench_step(const BenchStepOptions& options, const std::vector<std::string>& rest) {
  const run::ConfigArguments arguments = run::split_config_arguments(rest);
  bench::StepProblem problem;
  problem.config = run::load_config(arguments.path, arguments.overrides);
  if (!options.device.empty()) problem.config.train.device = options.device;
  problem.config.train.accumulate = 1;
  const std::int64_t tokens =
      problem.config.train.tokens > 0 ? problem.config.train.tokens : 65'536;
  problem.lengths = std::filesystem::is_regular_file(options.lengths)
                        ? data::read_length_table(options.lengths)
                        : bench::make_lengths(options.lengths, tokens,
                                              problem.config.data.max_length, options.seed);
  for (const std::int64_t length : problem.lengths) {
    TGR_CHECK(length <= problem.config.data.max_length, "a sequence of ", length, " tokens in '",
              options.lengths, "' where data.max_length is ", problem.config.data.max_length);
  }
  problem.items = options.items;
  problem.steps = options.steps;
  problem.seed = options.seed;
  Trace trace;
  if (!options.trace.empty()) problem.trace = &trace;
  const bench::StepFigures f = bench::measure_step(problem);
  if (!options.trace.empty()) trace.write(options.trace);

  fmt::print("{} on {}: {} tokens in {:.2f} ms, {:.0f} tokens/s\n", arguments.path,
             problem.config.train.device, f.tokens, f.ms,
             static_cast<double>(f.tokens) / f.ms * 1e3);
  fmt::print("MFU {:.1f} % causal, {:.1f} % paper, of {:.3g} TFLOP/s; {}; loss {:.4f}\n",
             100 * f.mfu_causal, 100 * f.mfu_paper, f.peak_tflops, memory_text(f.memory_bytes),
             f.loss);
  if (f.joules_per_token > 0) {
    fmt::print("energy {:.3f} mJ a token, {:.0f} W\n", 1e3 * f.joules_per_token,
               f.joules_per_token * static_cast<double>(f.tokens) / f.ms * 1e3);
  }
  for (std::size_t s = 0; s < kSections; ++s) {
    if (f.section_ms[s] == 0) continue;
    fmt::print("  {:<20}{:9.2f} ms\n", name_of(static_cast<Section>(s)), f.section_ms[s]);
  }
  if (f.link_bytes_to_device > 0) {
    fmt::print("over the link a step: {:.2f} GB to the device, {:.2f} GB back\n",
               f.link_bytes_to_device * 1e-9, f.link_bytes_to_host * 1e-9);
  }
  if (f.link.both > 0) {
    fmt::print("the link: {:.1f} GB/s to the device, {:.1f} back, {:.1f} both at once\n",
               f.link.to_device, f.link.to_host, f.link.both);
  }
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << row_of(arguments.path, problem.config, f).dump(2) << "\n";
  TGR_CHECK(file.good(), "cannot write '", options.json, "'");
}

}  // namespace

void add_bench_step(Command& bench) {
  auto options = std::make_shared<BenchStepOptions>();
  Command* command =
      bench.add_subcommand("step", "Whole training steps of a config on made-up users");
  command->take_config();
  command->add_option("--device", options->device, "cpu or cuda; default: the config's")
      ->check(is_one_of({"cpu", "cuda"}));
  command->add_option("--lengths", options->lengths,
                      "kuairand, uniform:L, lognormal:MEAN:MAX, or a file with one length a line");
  command->add_option("--items", options->items, "rows of the item table")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--steps", options->steps, "steps to time")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of lengths, users and weights")
      ->capture_default_str();
  command->add_option("--json", options->json, "write the figures there");
  command->add_option("--trace", options->trace, "write the steps' trace there, for Perfetto");
  command->callback([options, command] { run_bench_step(*options, command->remaining()); });
}

}  // namespace turbogr::apps
