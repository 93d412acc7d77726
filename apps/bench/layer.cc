// `turbogr bench layer`: one HSTU layer, forward and backward, beside the padded layer in PyTorch.
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/bench/commands.h"
#include "apps/command_line.h"
#include "bench/layer_bench.h"
#include "bench/lengths.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/version.h"
#include "turbogr/data/length_table.h"

namespace turbogr::apps {
namespace {

namespace fs = std::filesystem;

struct BenchLayerOptions {
  bench::LayerProblem problem;
  std::string lengths = "kuairand";
  std::int64_t tokens = 65'536;
  std::int64_t max_length = 4096;
  std::string device = "cuda";
  std::string dtype;
  std::string bias = "none";
  std::string baseline = "python3";
  std::string baseline_script;
  int baseline_repeats = 11;
  std::string json;
};

bench::LayerProblem problem_of(const BenchLayerOptions& options) {
  bench::LayerProblem problem = options.problem;
  problem.device = options.device == "cuda" ? Device::kCuda : Device::kCpu;
  problem.dtype = !options.dtype.empty()            ? dtype_from_name(options.dtype)
                  : problem.device == Device::kCuda ? DType::kBf16
                                                    : DType::kF32;
  problem.bias = model::bias_kind_from_name(options.bias);
  problem.lengths =
      fs::is_regular_file(options.lengths)
          ? data::read_length_table(options.lengths)
          : bench::make_lengths(options.lengths, options.tokens, options.max_length, problem.seed);
  return problem;
}

// Beside the source tree that the program was built in, or that it is started from.
std::string script_of(const BenchLayerOptions& options) {
  if (!options.baseline_script.empty()) return options.baseline_script;
  const fs::path name = fs::path("bench") / "baselines" / "layer.py";
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (const fs::path& folder : {fs::path("."), program.parent_path().parent_path()}) {
    if (fs::is_regular_file(folder / name, ignored)) return (folder / name).string();
  }
  return "";
}

std::string quoted(const std::string& word) {
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// The lengths in a file of their own, gone afterwards: a command line may be too short for them.
class LengthsFile {
 public:
  explicit LengthsFile(const std::vector<std::int64_t>& lengths) {
    std::string name = (fs::temp_directory_path() / "turbogr-lengths-XXXXXX").string();
    const int descriptor = ::mkstemp(name.data());
    TGR_CHECK(descriptor >= 0, "cannot make a file in '", fs::temp_directory_path().string(),
              "'; set TMPDIR to a folder with room");
    ::close(descriptor);
    path_ = name;
    std::ofstream file(path_);
    for (const std::int64_t length : lengths) file << length << "\n";
    file.close();
    TGR_CHECK(!file.fail(), "cannot write '", path_.string(), "'; set TMPDIR to one with room");
  }
  ~LengthsFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  LengthsFile(const LengthsFile&) = delete;
  LengthsFile& operator=(const LengthsFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

// What the script says: its last line, or {"unavailable": why}. Its warnings go where ours go.
nlohmann::json run_baseline(const BenchLayerOptions& options, const bench::LayerProblem& problem) {
  const auto unavailable = [](const std::string& why) {
    return nlohmann::json{{"unavailable", why}};
  };
  const std::string script = script_of(options);
  if (script.empty()) {
    return unavailable("bench/baselines/layer.py is not here; name it with --baseline-script");
  }
  const LengthsFile lengths(problem.lengths);
  const std::string command = fmt::format(
      "{} {} --lengths {} --heads {} --head-dim {} --width {} --device {} --dtype {} --bias {} "
      "--repeats {} --threads {}{}",
      quoted(options.baseline), quoted(script), quoted(lengths.path()), problem.heads,
      problem.head_dim, problem.width, options.device, name_of(problem.dtype), options.bias,
      options.baseline_repeats, problem.threads, problem.concat ? " --concat" : "");
  std::fflush(stdout);
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return unavailable("cannot start '" + options.baseline + "'");
  std::string output;
  char block[4096];
  for (std::size_t count = 0; (count = std::fread(block, 1, sizeof block, pipe)) > 0;) {
    output.append(block, count);
  }
  const int status = ::pclose(pipe);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return unavailable(fmt::format("'{} {}' failed{}", options.baseline, script,
                                   WIFEXITED(status)
                                       ? fmt::format(" with status {}", WEXITSTATUS(status))
                                       : fmt::format(", signal {}", WTERMSIG(status))));
  }
  while (!output.empty() && output.back() == '\n') output.pop_back();
  const std::size_t line = output.rfind('\n');
  nlohmann::json said = nlohmann::json::parse(
      line == std::string::npos ? output : output.substr(line + 1), nullptr, false);
  return said.is_object() ? said : unavailable("'" + script + "' printed no JSON object");
}

// Adds our speed over each mode's to what the baseline said, and prints it.
void print_baseline(nlohmann::json& baseline, double our_ms) {
  if (baseline.contains("unavailable")) {
    fmt::print("baseline not run: {}\n", baseline["unavailable"].get<std::string>());
    return;
  }
  for (auto& [mode, figures] : baseline.at("modes").items()) {
    const std::string name = "padded PyTorch " + mode;
    if (figures.contains("error")) {
      fmt::print("{:<24}failed: {}\n", name, figures["error"].get<std::string>());
      continue;
    }
    const double ms = figures.at("ms");
    figures["ratio"] = ms / our_ms;
    fmt::print("{:<24}{:9.3f} ms  {:>11.0f} tokens/s   ours is {:.2f}x\n", name, ms,
               figures.at("tokens_per_s").get<double>(), ms / our_ms);
  }
}

nlohmann::json row_of(const BenchLayerOptions& options, const bench::LayerProblem& problem,
                      const bench::LayerFigures& f) {
  nlohmann::json sections;
  for (std::size_t s = 0; s < kSections; ++s) {
    sections[std::string(name_of(static_cast<Section>(s)))] = f.section_ms[s];
  }
  return {{"version", version()},
          {"commit", commit()},
          {"device", options.device},
          {"device_name", device_name()},
          {"dtype", name_of(problem.dtype)},
          {"lengths", options.lengths},
          {"sequences", problem.lengths.size()},
          {"tokens", problem.tokens()},
          {"longest", problem.longest()},
          {"heads", problem.heads},
          {"head_dim", problem.head_dim},
          {"width", problem.width},
          {"bias", options.bias},
          {"concat", problem.concat},
          {"ms", f.both.ms},
          {"p10_ms", f.both.p10_ms},
          {"p90_ms", f.both.p90_ms},
          {"forward_ms", f.forward.ms},
          {"backward_ms", f.backward.ms},
          {"tokens_per_s", static_cast<double>(problem.tokens()) / f.both.ms * 1e3},
          {"causal_flops", problem.flops()},
          {"causal_tflops", problem.flops() / f.both.ms * 1e-9},
          {"small_error", f.small_error},
          {"full_error", f.full_error},
          {"allowed_error", f.allowed_error},
          {"memory_bytes", f.memory_bytes},
          {"section_ms", sections}};
}

void run_bench_layer(const BenchLayerOptions& options) {
  const bench::LayerProblem problem = problem_of(options);
  fmt::print("turbogr {} ({}); {}: {} sequences, {} tokens, longest {}\n", version(), commit(),
             options.lengths, problem.lengths.size(), problem.tokens(), problem.longest());
  const bench::LayerFigures f = bench::measure_layer(problem);
  nlohmann::json row = row_of(options, problem, f);
  fmt::print("one HSTU layer{}, {} x {}, width {}, {} on {}, bias {}\n",
             problem.concat ? " with concat" : "", problem.heads, problem.head_dim, problem.width,
             name_of(problem.dtype), options.device, options.bias);
  fmt::print("{:<24}{:9.3f} ms  {:>11.0f} tokens/s   {:.3g} TFLOP/s, causal FLOPs\n", "turbogr",
             f.both.ms, row["tokens_per_s"].get<double>(), row["causal_tflops"].get<double>());
  fmt::print("  forward {:.3f} ms, backward {:.3f} ms; errors {:.1e} and {:.1e} of {:.0e}\n",
             f.forward.ms, f.backward.ms, f.small_error, f.full_error, f.allowed_error);
  for (std::size_t s = 0; s < kSections; ++s) {
    if (f.section_ms[s] == 0) continue;
    fmt::print("  {:<22}{:9.3f} ms\n", name_of(static_cast<Section>(s)), f.section_ms[s]);
  }
  if (options.baseline != "none") {
    nlohmann::json baseline = run_baseline(options, problem);
    print_baseline(baseline, f.both.ms);
    row["baseline"] = baseline;
  }
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << row.dump(1) << "\n";
  file.close();
  TGR_CHECK(!file.fail(), "cannot write '", options.json,
            "'; check that the folder exists and has room");
}

}  // namespace

void add_bench_layer(Command& bench) {
  auto options = std::make_shared<BenchLayerOptions>();
  bench::LayerProblem& problem = options->problem;
  Command* command = bench.add_subcommand("layer", "One HSTU layer beside padded PyTorch");
  command
      ->add_option("--lengths", options->lengths,
                   "kuairand, uniform:L, lognormal:MEAN:MAX, or a file with one length a line")
      ->capture_default_str();
  command->add_option("--tokens", options->tokens, "of lengths that are not from a file")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--max-length", options->max_length, "of lengths that are not from a file")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--heads", problem.heads, "Attention heads")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--head-dim", problem.head_dim, "Width of a head")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--width", problem.width, "Width of the model")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--device", options->device, "cpu or cuda")
      ->check(is_one_of({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "bf16 or f32; default: bf16 on cuda, f32 on cpu")
      ->check(is_one_of({"bf16", "f32"}));
  command->add_option("--bias", options->bias, "none or both")
      ->check(is_one_of({"none", "both"}))
      ->capture_default_str();
  command->add_flag("--concat", problem.concat, "Project [U, a, U*a] instead of U*a");
  command->add_option("--threads", problem.threads, "On a CPU; 0: one a core")
      ->check(is_not_negative())
      ->capture_default_str();
  command->add_option("--repeats", problem.repeats, "Passes timed; the median is quoted")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--seed", problem.seed, "of lengths, rows and weights")
      ->capture_default_str();
  command->add_option("--baseline", options->baseline, "The Python that may have PyTorch, or none")
      ->capture_default_str();
  command->add_option("--baseline-script", options->baseline_script,
                      "default: bench/baselines/layer.py of the source tree");
  command
      ->add_option("--baseline-repeats", options->baseline_repeats, "Passes of the baseline timed")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--json", options->json, "Also write the figures to this file");
  command->callback([options] { run_bench_layer(*options); });
}

}  // namespace turbogr::apps
