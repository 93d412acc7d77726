// `turbogr bench machine`: what `turbogr plan` needs to know of this machine and its links.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "apps/bench/commands.h"
#include "apps/command_line.h"
#include "bench/collective_bench.h"
#include "bench/lengths.h"
#include "bench/step_bench.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/progress.h"
#include "turbogr/core/version.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/plan/cluster.h"
#include "turbogr/plan/describe.h"

namespace turbogr::apps {
namespace {

struct BenchMachineOptions {
  std::string json = "machine.json";
  std::string device = "auto";
  std::string like;  // empty: h200 on a GPU, nothing on a CPU
  std::string like_network = "eth25";
  // 0: by the device, below
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t max_length = 0;
  std::int64_t negatives = 0;
  std::int64_t items = 0;
  std::int64_t threads = 0;
  std::int64_t steps = 8;
  bool links_only = false;
  bench::CollectiveProblem collectives;

  bool cuda() const { return device == "cuda"; }
};

// The published models on a GPU; on a CPU small ones, as its ranks train them.
void fill_shape(BenchMachineOptions& options) {
  const bool cuda = options.cuda();
  const auto fill = [](std::int64_t& value, std::int64_t otherwise) {
    if (value == 0) value = otherwise;
  };
  fill(options.tokens, cuda ? 65'536 : 2048);
  fill(options.width, cuda ? 1024 : 64);
  fill(options.layers, cuda ? 16 : 4);
  fill(options.heads, cuda ? 8 : 2);
  fill(options.max_length, cuda ? 2048 : 128);
  fill(options.negatives, cuda ? 8192 : 1024);
  fill(options.items, cuda ? 1'000'000 : 100'000);
}

struct MachineStep {
  std::string kind, bias, set;
  std::int64_t max_length, negatives;
};

run::Config config_of(const MachineStep& step, const BenchMachineOptions& o) {
  return run::parse_config(
      fmt::format("[data]\nstore = \"none\"\nmax_length = {}\n"
                  "[model]\nkind = \"{}\"\nlayers = {}\nwidth = {}\nheads = {}\ndq = {}\n"
                  "dv = {}\ndropout = 0.0\nbias = \"{}\"\n"
                  "[train]\ntokens = {}\ndtype = \"{}\"\ndevice = \"{}\"\nthreads = {}\n"
                  "peak_tflops = {}\n"
                  "[embedding]\noptimiser = \"adagrad\"\n"
                  "[negatives]\ncount = {}\nset = \"{}\"\n",
                  step.max_length, step.kind, o.layers, o.width, o.heads, o.width / o.heads,
                  o.width / o.heads, step.bias, o.tokens, o.cuda() ? "bf16" : "f32", o.device,
                  o.threads, /*not read here=*/1.0, step.negatives, step.set),
      "bench machine");
}

// Distinct rows of `draws` even ones out of a table.
double distinct_of(double draws, double items) { return items * -std::expm1(-draws / items); }

plan::MeasuredStep measured(const MachineStep& step, const BenchMachineOptions& options) {
  bench::StepProblem problem;
  problem.config = config_of(step, options);
  // A CPU's are of one length: batches are small, and pairs must tell from tokens.
  problem.lengths = options.cuda()
                        ? bench::make_lengths("kuairand", options.tokens, step.max_length, 1)
                        : bench::make_lengths(fmt::format("uniform:{}", step.max_length),
                                              options.tokens, step.max_length, 1);
  problem.items = options.items;
  problem.steps = options.steps;
  const bench::StepFigures figures = bench::measure_step(problem);
  const auto seconds = [&](Section section) {
    return 1e-3 * figures.section_ms[static_cast<std::size_t>(section)];
  };
  plan::MeasuredStep result;
  result.work = plan::setup_of(problem.config, {.nodes = 1, .gpus = 1}).work;
  result.lengths = problem.lengths;
  const bool own = step.set == "token";
  const auto draws = static_cast<double>(step.negatives * (own ? figures.tokens : 1));
  result.rows = figures.batch_items +
                static_cast<std::int64_t>(distinct_of(draws, static_cast<double>(options.items)));
  result.seconds = 1e-3 * figures.ms;
  result.sections.products = seconds(Section::kGemm);
  result.sections.attention_forward = seconds(Section::kAttentionForward);
  result.sections.attention_backward = seconds(Section::kAttentionBackward);
  result.sections.elementwise = seconds(Section::kElementwise);
  result.sections.embedding = seconds(Section::kEmbedding);
  result.sections.loss = seconds(Section::kLoss);
  result.sections.optimiser = seconds(Section::kOptimiser);
  print_result("{:<5} bias {:<5} S {:<5} negatives {} a {}: {:.2f} ms\n", step.kind, step.bias,
               step.max_length, step.negatives, step.set, figures.ms);
  return result;
}

std::vector<plan::MeasuredStep> measure_steps(const BenchMachineOptions& o) {
  const std::int64_t longer = o.cuda() ? 2 * o.max_length : 4 * o.max_length;
  const std::int64_t own = std::max<std::int64_t>(1, o.negatives / 64);
  std::vector<plan::MeasuredStep> steps;
  for (const MachineStep& step : {MachineStep{"hstu", "both", "batch", o.max_length, o.negatives},
                                  MachineStep{"hstu", "both", "batch", longer, o.negatives},
                                  MachineStep{"fuxi", "both", "batch", o.max_length, o.negatives},
                                  MachineStep{"fuxi", "both", "batch", longer, o.negatives},
                                  MachineStep{"hstu", "none", "batch", o.max_length, o.negatives},
                                  MachineStep{"hstu", "none", "token", o.max_length, own}}) {
    steps.push_back(measured(step, o));
  }
  return steps;
}

// Of the machine at large: what steps do not tell.
plan::GpuDescription base_of(const BenchMachineOptions& options, const std::string& source) {
  plan::GpuDescription base;
  if (!options.like.empty()) base = plan::gpu_description(options.like);
  base.device = options.device;
  if (options.cuda()) {
    base.memory_gib = {static_cast<double>(device_memory().total) / (1 << 30), source};
    return base;
  }
  const auto pages = static_cast<double>(::sysconf(_SC_PHYS_PAGES));
  base.memory_gib = {pages * static_cast<double>(::sysconf(_SC_PAGE_SIZE)) / (1 << 30), source};
  const char* alone = "derived: no second rank of this machine was measured";
  base.local_gbs = {10, alone};
  base.local_us = {10, alone};
  base.host_link_gbs = {10, "derived: a CPU's memory is its host's, and no link is asked for"};
  return base;
}

void print_collectives(const std::vector<plan::CollectiveTime>& times) {
  for (const plan::CollectiveTime& time : times) {
    print_result("{:<11} {} ranks on {} machines, {:>9} bytes: {:>10.1f} us\n", time.collective,
                 time.ranks, time.nodes, grouped_text(time.bytes), 1e6 * time.seconds);
  }
}

void run_bench_machine(BenchMachineOptions options, dist::Communicator& world) {
  if (options.device == "auto") options.device = kWithCuda && num_gpus() > 0 ? "cuda" : "cpu";
  TGR_CHECK(options.device == "cpu" || options.cuda(), "--device is '", options.device,
            "'; wanted auto, cpu or cuda");
  TGR_CHECK(!options.cuda() || (kWithCuda && num_gpus() > 0),
            "--device cuda: there is no GPU here, or this build has no CUDA; take --device cpu");
  if (options.like.empty() && options.cuda()) options.like = "h200";
  TGR_CHECK(!options.links_only || !options.like.empty(),
            "--links-only leaves the device to --like; name a description there");
  fill_shape(options);
  const std::string source =
      fmt::format("measured: turbogr bench machine {} ({}) on {}", version(), commit(),
                  options.cuda() ? device_name() : "a CPU, width " + std::to_string(options.width));
  plan::MeasuredMachine machine;
  if (world.rank() == 0) {  // the others wait, which costs a rank nothing
    machine.gpu = base_of(options, source);
    if (!options.links_only) {
      machine.gpu = plan::describe(machine.gpu, measure_steps(options), source);
    }
    if (!options.cuda() && !options.links_only) {
      machine.gpu.peak_tflops = machine.gpu.product_tflops;
      machine.gpu.peak_tflops.source = "derived: as product_tflops";
    }
  }
  world.barrier();
  machine.collectives = bench::measure_collectives(world, options.collectives);
  if (world.rank() != 0) return;
  print_collectives(machine.collectives);
  machine.network = plan::describe_network(
      machine.collectives, source, plan::network_description(options.like_network), machine.gpu);
  replace_file(options.json, plan::json_of(machine));
  print_result("wrote {}; take it with `turbogr plan --gpu {}`{}\n", options.json, options.json,
               machine.network ? " and `--network` alike" : "; links are measured under mpirun");
  if (!options.like.empty()) print_result("what was not measured is as of {}\n", options.like);
  if (machine.network && options.cuda()) {
    print_result(
        "links between GPUs are not measured: inside a machine as of {}, between as of {}\n",
        options.like, options.like_network);
  }
}

}  // namespace

void add_bench_machine(Command& bench) {
  auto options = std::make_shared<BenchMachineOptions>();
  Command* command = bench.add_subcommand(
      "machine", "Measure this machine for `turbogr plan`: a description with sources");
  command->footer(
      "Times the sections of training steps; under mpirun also collectives of all ranks by size.");
  command->add_option("--json", options->json, "File to write")->capture_default_str();
  command->add_option("--device", options->device, "auto, cpu or cuda")->capture_default_str();
  command->add_option("--like", options->like,
                      "Whose figures stand where nothing is measured; default: h200 on a GPU");
  command
      ->add_option("--like-network", options->like_network,
                   "Whose links stand where none is measured")
      ->capture_default_str();
  const auto count = [&](const char* name, std::int64_t& value, const char* text) {
    command->add_option(name, value, text)->check(is_positive());
  };
  count("--tokens", options->tokens, "Of a batch; default: 65536, on a CPU 2048");
  count("--width", options->width, "Of the models; default: 1024, on a CPU 64");
  count("--layers", options->layers, "Of the models; default: 16, on a CPU 4");
  count("--heads", options->heads, "Of the models; default: 8, on a CPU 2");
  count("--max-length", options->max_length, "Of sequences; default: 2048, on a CPU 128");
  count("--negatives", options->negatives, "Of a batch; default: 8192, on a CPU 1024");
  count("--items", options->items, "Rows of the table; default: 1000000, on a CPU 100000");
  count("--threads", options->threads, "Of a rank; default: all cores");
  command->add_option("--steps", options->steps, "To time of each model")
      ->check(is_positive())
      ->capture_default_str();
  command->add_flag("--links-only", options->links_only,
                    "Collectives of the ranks alone; the device is as of --like");
  command->add_option("--largest", options->collectives.largest, "Bytes of a collective, the most")
      ->check(is_positive())
      ->capture_default_str();
  command->callback([options] {
    dist::run_as_launched([&](dist::Communicator& world) { run_bench_machine(*options, world); });
  });
}

}  // namespace turbogr::apps
