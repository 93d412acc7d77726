// `turbogr bench ops`: every operator, its share of a peak measured in the same run, its padded
// baseline.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "apps/bench/commands.h"
#include "apps/command_line.h"
#include "bench/lengths.h"
#include "bench/op_case.h"
#include "bench/peaks.h"
#include "bench/timing.h"
#include "turbogr/core/version.h"

namespace turbogr::apps {
namespace {

using bench::OpCase;
using bench::OpFamily;
using bench::OpProblem;

// Below this a run is a trial of the program, and even its peaks are measured with small matrices.
constexpr double kLeastSeconds = 0.1;

struct BenchOpsOptions {
  std::string op = "all";
  std::string lengths = "kuairand";
  std::string dtype = "all";
  std::string bias = "both";
  std::string json;
  std::int64_t max_length = 2048;
  std::int64_t tokens = 8192;
  std::int64_t head_dim = 64;
  int heads = 8;
  int threads = 0;
  double seconds = 0.4;
  std::uint64_t seed = 1;
};

std::vector<OpFamily> chosen_families(const std::string& op) {
  std::vector<OpFamily> families = bench::all_families();
  if (op == "all") return families;
  std::string known;
  for (const OpFamily& family : families) {
    if (family.op == op) return {family};
    known += (known.empty() ? "" : ", ") + family.op;
  }
  throw Error(fmt::format("no operator '{}' to measure; there are {}, or all", op, known));
}

std::vector<DType> chosen_dtypes(const std::string& dtype) {
  if (dtype == "all") return {DType::kF32, DType::kBf16};
  TGR_CHECK(dtype == "f32" || dtype == "bf16", "unknown dtype '", dtype,
            "' to measure; use f32, bf16 or all");
  return {dtype_from_name(dtype)};
}

struct Peaks {
  double f32_gflops, bf16_gflops, copy_gbytes;
};

nlohmann::json measure(const OpCase& op, const OpProblem& problem, const Peaks& peaks,
                       double seconds) {
  const auto [ours, padded] = bench::time_in_turn(op.run, op.run_padded, seconds, 3);
  const double gflops = op.flops / ours.ms * 1e-6;
  const double gbytes = op.bytes / ours.ms * 1e-6;
  const double peak = op.flops == 0              ? peaks.copy_gbytes
                      : op.dtype == DType::kBf16 ? peaks.bf16_gflops
                                                 : peaks.f32_gflops;
  const double share = (op.flops == 0 ? gbytes : gflops) / peak;
  const std::string rate = op.flops == 0 ? fmt::format("{:8.1f} GB/s   ", gbytes)
                                         : fmt::format("{:8.1f} GFLOP/s", gflops);
  fmt::print(
      "{:<20} {:<9} {:<5} {:>9.3f} ms  {}  {:>4.0f}% of peak  {:>6.2f}x padded  {:>5.1f}% memory\n",
      op.op, op.direction, name_of(op.dtype), ours.ms, rate, 100 * share, padded.ms / ours.ms,
      100.0 * static_cast<double>(op.peak_bytes) / static_cast<double>(op.padded_bytes));
  std::fflush(stdout);
  nlohmann::json row = {{"op", op.op},
                        {"direction", op.direction},
                        {"dtype", name_of(op.dtype)},
                        {"tokens", problem.tokens()},
                        {"ms", ours.ms},
                        {"p10_ms", ours.p10_ms},
                        {"p90_ms", ours.p90_ms},
                        {"gflops", nullptr},
                        {"gbytes_per_s", nullptr},
                        {"peak_share", share},
                        {"padded_ms", padded.ms},
                        {"padded_ratio", padded.ms / ours.ms},
                        {"peak_bytes", op.peak_bytes},
                        {"padded_bytes", op.padded_bytes},
                        {"padded_tokens", problem.padded_tokens()},
                        {"seed", problem.seed}};
  if (op.flops == 0) {
    row["gbytes_per_s"] = gbytes;
  } else {
    row["gflops"] = gflops;
  }
  return row;
}

void write_json(const std::string& path, const nlohmann::json& rows) {
  std::ofstream out(path);
  out << rows.dump(1) << "\n";
  out.close();
  TGR_CHECK(!out.fail(), "cannot write '", path, "'; check that the folder exists and has room");
}

void run_bench_ops(const BenchOpsOptions& options) {
  TGR_CHECK(options.seconds >= 0, "seconds is ", options.seconds, "; give 0 or more");
  TGR_CHECK(options.heads > 0, "heads is ", options.heads, "; give at least 1");
  TGR_CHECK(options.head_dim > 0 && options.head_dim <= 256, "head-dim is ", options.head_dim,
            "; give 1 to 256");
  TGR_CHECK(std::set<std::string>({"none", "position", "time", "both"}).count(options.bias) == 1,
            "unknown bias '", options.bias, "'; use none, position, time or both");
  const std::vector<OpFamily> families = chosen_families(options.op);
  const std::vector<DType> dtypes = chosen_dtypes(options.dtype);
  OpProblem problem;
  problem.lengths =
      bench::make_lengths(options.lengths, options.tokens, options.max_length, options.seed);
  problem.max_length = options.max_length;
  problem.heads = options.heads;
  problem.head_dim = options.head_dim;
  problem.bias = options.bias;
  problem.seed = options.seed;
  problem.table_rows = std::clamp<std::int64_t>(16 * options.tokens, 1024, problem.table_rows);

  const Context ctx({.threads = options.threads});
  const auto peak_size =
      options.seconds < kLeastSeconds ? bench::PeakSize::kSmall : bench::PeakSize::kFull;
  const Peaks peaks = {bench::gemm_peak_gflops(ctx, DType::kF32, peak_size),
                       bench::gemm_peak_gflops(ctx, DType::kBf16, peak_size),
                       bench::copy_peak_gbytes(ctx, peak_size)};
  fmt::print("{}, {} threads, {} kernels; turbogr {} ({})\n", cpu_model(), ctx.threads(),
             name_of(ctx.simd()), version(), commit());
  fmt::print("peaks: product f32 {:.0f} and bf16 {:.0f} GFLOP/s, copy {:.1f} GB/s\n",
             peaks.f32_gflops, peaks.bf16_gflops, peaks.copy_gbytes);
  fmt::print("lengths {}: {} sequences, {} tokens, longest {}, {} tokens when padded\n",
             options.lengths, problem.lengths.size(), problem.tokens(), problem.longest(),
             problem.padded_tokens());
  nlohmann::json rows = nlohmann::json::array();
  for (const OpFamily& family : families) {
    for (const DType dtype : dtypes) {
      for (const OpCase& op : family.make(ctx, problem, dtype)) {
        const double error = op.error();
        TGR_CHECK(error <= op.allowed_error, op.op, " ", op.direction, " ", name_of(dtype),
                  ": wrong answer, relative error ", error, " where ", op.allowed_error,
                  " is allowed; not timed");
        rows.push_back(measure(op, problem, peaks, options.seconds));
        rows.back()["lengths"] = options.lengths;
        rows.back()["error"] = error;
      }
    }
  }
  TGR_CHECK(!rows.empty(), options.op, " has no ", options.dtype, " form; use --dtype f32");
  if (!options.json.empty()) write_json(options.json, rows);
}

}  // namespace

void add_bench_ops(Command& bench) {
  auto options = std::make_shared<BenchOpsOptions>();
  Command* command =
      bench.add_subcommand("ops", "Measure the operators against peaks and padded baselines");
  command->add_option("--op", options->op, "One operator, or all")->capture_default_str();
  command->add_option("--lengths", options->lengths, "kuairand, uniform:L or lognormal:MEAN:MAX")
      ->capture_default_str();
  command->add_option("--max-length", options->max_length, "Longest sequence")
      ->capture_default_str();
  command->add_option("--heads", options->heads, "Attention heads")->capture_default_str();
  command->add_option("--head-dim", options->head_dim, "Width of a head")->capture_default_str();
  command->add_option("--tokens", options->tokens, "Tokens in the batch")->capture_default_str();
  command->add_option("--dtype", options->dtype, "f32, bf16 or all")->capture_default_str();
  command->add_option("--bias", options->bias, "none, position, time or both")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads; 0: one a core")
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "Least time for each case")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of lengths and inputs")->capture_default_str();
  command->add_option("--json", options->json, "Also write the rows to this file");
  command->callback([options] { run_bench_ops(*options); });
}

}  // namespace turbogr::apps
