// `turbogr bench attention`: attention on a GPU, forward and backward, beside what it costs in
// products.
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/bench/commands.h"
#include "apps/command_line.h"
#include "bench/gpu_attention.h"
#include "turbogr/core/context.h"
#include "turbogr/core/version.h"

namespace turbogr::apps {
namespace {

struct BenchAttentionOptions {
  std::string device = "cuda";
  std::string lengths = "uniform:2048:32";
  std::string bias = "none";
  std::string model = "hstu";
  std::string dtype = "bf16";
  std::string json;
  std::int64_t head_dim = 128;
  int heads = 8;
  int repeats = 31;
  std::uint64_t seed = 1;
};

bench::GpuAttentionProblem problem_of(const BenchAttentionOptions& options) {
  TGR_CHECK(options.device == "cuda", "device '", options.device,
            "': this measures GPUs; for the CPU use `turbogr bench ops --op hstu_attention`");
  TGR_CHECK(options.heads > 0, "heads is ", options.heads, "; give at least 1");
  TGR_CHECK(options.head_dim > 0 && options.head_dim <= 256, "head-dim is ", options.head_dim,
            "; give 1 to 256");
  TGR_CHECK(options.repeats > 0, "repeats is ", options.repeats, "; give at least 1");
  TGR_CHECK(options.model == "hstu" || options.model == "fuxi", "unknown model '", options.model,
            "'; use hstu or fuxi");
  TGR_CHECK(options.dtype == "bf16" || options.dtype == "f32", "unknown dtype '", options.dtype,
            "'; use bf16 or f32");
  const bool both = options.bias == "both";
  TGR_CHECK(both || options.bias == "none" || options.bias == "position" || options.bias == "time",
            "unknown bias '", options.bias, "'; use none, position, time or both");
  bench::GpuAttentionProblem problem;
  problem.lengths = bench::batch_lengths(options.lengths);
  problem.heads = options.heads;
  problem.head_dim = options.head_dim;
  problem.position = both || options.bias == "position";
  problem.time = both || options.bias == "time";
  problem.fuxi = options.model == "fuxi";
  problem.dtype = dtype_from_name(options.dtype);
  problem.seed = options.seed;
  TGR_CHECK(
      kWithCuda,
      "this measures GPUs, and this build has no CUDA: build with `make cuda`, or measure the "
      "CPU with `turbogr bench ops --op hstu_attention`");
  return problem;
}

void run_bench_attention(const BenchAttentionOptions& options) {
  const bench::GpuAttentionProblem problem = problem_of(options);
  const Context ctx({.device = Device::kCuda});
  fmt::print("turbogr {} ({}); lengths {}: {} sequences, {} tokens, longest {}\n", version(),
             commit(), options.lengths, problem.lengths.size(), problem.tokens(),
             problem.longest());
  const bench::GpuAttentionTimes times =
      bench::measure_gpu_attention(ctx, problem, options.repeats);
  const double forward_tflops = problem.forward_flops() / times.forward.ms * 1e-9;
  const double backward_tflops = problem.backward_flops() / times.backward.ms * 1e-9;
  fmt::print(
      "{} {} x {} {} bias {:<8}  forward {:.3f} ms {:.0f} TFLOP/s   backward {:.3f} ms {:.0f} "
      "TFLOP/s   plan {:.3f} ms   error {:.1e} of {:.1e}\n",
      options.model, options.heads, options.head_dim, options.dtype, options.bias, times.forward.ms,
      forward_tflops, times.backward.ms, backward_tflops, times.plan.ms, times.error,
      times.allowed_error);
  fmt::print("causal FLOPs; backward counted {}\n",
             problem.fuxi ? "2.5 times, the tables' products twice" : "2.5 times");
  if (options.json.empty()) return;
  const nlohmann::json row = {{"op", options.model + "_attention"},
                              {"device", "cuda"},
                              {"dtype", options.dtype},
                              {"lengths", options.lengths},
                              {"tokens", problem.tokens()},
                              {"heads", options.heads},
                              {"head_dim", options.head_dim},
                              {"bias", options.bias},
                              {"forward_ms", times.forward.ms},
                              {"forward_p10_ms", times.forward.p10_ms},
                              {"forward_p90_ms", times.forward.p90_ms},
                              {"forward_tflops", forward_tflops},
                              {"backward_ms", times.backward.ms},
                              {"backward_p10_ms", times.backward.p10_ms},
                              {"backward_p90_ms", times.backward.p90_ms},
                              {"backward_tflops", backward_tflops},
                              {"plan_ms", times.plan.ms},
                              {"plan_bytes", times.plan_bytes},
                              {"error", times.error},
                              {"seed", options.seed}};
  std::ofstream out(options.json);
  out << row.dump(1) << "\n";
  out.close();
  TGR_CHECK(!out.fail(), "cannot write '", options.json,
            "'; check that the folder exists and has room");
}

}  // namespace

void add_bench_attention(Command& bench) {
  auto options = std::make_shared<BenchAttentionOptions>();
  Command* command = bench.add_subcommand("attention", "Measure attention on a GPU");
  command->add_option("--device", options->device, "cuda")->capture_default_str();
  command->add_option("--lengths", options->lengths, "uniform:L:B, or a file with one a line")
      ->capture_default_str();
  command->add_option("--heads", options->heads, "Attention heads")->capture_default_str();
  command->add_option("--head-dim", options->head_dim, "Width of a head")->capture_default_str();
  command->add_option("--bias", options->bias, "none, position, time or both")
      ->capture_default_str();
  command->add_option("--model", options->model, "hstu or fuxi")->capture_default_str();
  command->add_option("--dtype", options->dtype, "bf16 or f32")->capture_default_str();
  command->add_option("--repeats", options->repeats, "Calls timed; the median is quoted")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the inputs")->capture_default_str();
  command->add_option("--json", options->json, "Also write the figures to this file");
  command->callback([options] { run_bench_attention(*options); });
}

}  // namespace turbogr::apps
