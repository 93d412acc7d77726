// Checks and times FuXi attention on the GPU. Needs nothing but the NVIDIA driver.
//
//   fuxi_bench test
//   fuxi_bench time --lengths FILE|uniform:L:B|random:LOW:HIGH:B --heads H --head-dim D
//                   [--maps both|none|position|time] [--times sorted|unsorted]
//                   [--table-gradients yes|no] [--deterministic no|yes] [--name NAME] [--json FILE]
//
// `time` checks a sample of the results first. FLOPs are those of the causal half: forward
// n (n + 1) / 2 * H * 2 * (dq + dv + 2 dv) a sequence, backward twice that, as in the model's MFU.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/attention_judge.cuh"
#include "bench/attention_problem.cuh"
#include "bench/attention_timing.cuh"
#include "bench/fuxi_reference.cuh"
#include "turbogr/ops/attention/hopper/fuxi.h"

namespace turbogr::bench {
namespace {

using Case = AttentionProblemCase;
using cuda::FuxiParams;

Case both_maps() {
  Case c;
  c.position = c.time = true;
  return c;
}

struct FuxiProblem : AttentionProblem<FuxiParams> {
  FuxiProblem(const Case& c, std::uint64_t seed, bool exact_rows)
      : AttentionProblem(c, {.maps = 3, .table_start = 0.3f}, seed, exact_rows) {
    add_workspace(cuda::fuxi_backward_workspace_bytes(params));
  }
};

bool verify_fuxi(const FuxiProblem& problem, std::int64_t most) {
  return verify(problem, true, most, 1,
                [&](bool plain, const ReferenceSamples& samples, const References& to) {
                  const FuxiReferenceArgs args{problem.params,
                                               samples.token_sequence,
                                               samples.step,
                                               true,
                                               to.out.data(),
                                               to.dq.data(),
                                               to.dk.data(),
                                               to.dv.data(),
                                               samples.step == 1 ? to.dposition.data() : nullptr,
                                               samples.step == 1 ? to.dtime.data() : nullptr};
                  const auto blocks = static_cast<unsigned>(samples.count);
                  const auto run = [&](auto query_kernel, auto key_kernel) {
                    query_kernel<<<blocks, kReferenceThreads>>>(args);
                    key_kernel<<<blocks, kReferenceThreads>>>(args);
                  };
                  if (plain) {
                    run(fuxi_reference_kernel<true, true>, fuxi_reference_kernel<true, false>);
                  } else {
                    run(fuxi_reference_kernel<false, true>, fuxi_reference_kernel<false, false>);
                  }
                });
}

// Whether results that no atomic add goes into have the same bits every time; a race would show.
bool repeats(const FuxiProblem& problem, int times) {
  const auto bits = [&] {
    std::vector<std::vector<__nv_bfloat16>> all;
    for (const auto* array : {&problem.out, &problem.dk, &problem.dv}) {
      all.push_back(array->to_host());
    }
    return all;
  };
  const auto before = bits();
  bool same = true;
  for (int i = 0; i < times; ++i) {
    problem.poison();
    cuda::fuxi_forward(problem.params);
    cuda::fuxi_backward(problem.params);
    check(cudaDeviceSynchronize(), "fuxi");
    const auto now = bits();
    for (std::size_t a = 0; a < now.size(); ++a) {
      same &= now[a].empty() || std::memcmp(now[a].data(), before[a].data(),
                                            now[a].size() * sizeof(__nv_bfloat16)) == 0;
    }
  }
  if (!same) std::printf("  %s: not the same bits every time\n", problem.c.name.c_str());
  return same;
}

int test(bool few) {
  const std::vector<int> odd = {1, 65, 0, 130, 64, 63, 3, 128, 0, 257, 90};
  int failures = 0;
  int cases = 0;
  const auto run = [&](const Case& c, bool dposition = true, bool dtime = true) {
    FuxiProblem problem(c, 31 + static_cast<std::uint64_t>(cases), false);
    if (!dposition) problem.params.dposition = nullptr;
    if (!dtime) problem.params.dtime = nullptr;
    cuda::plan_fuxi(problem.params);
    // Twice: the work list must be good for more than one call.
    cuda::fuxi_forward(problem.params);
    cuda::fuxi_backward(problem.params);
    problem.poison();
    cuda::fuxi_forward(problem.params);
    cuda::fuxi_backward(problem.params);
    check(cudaDeviceSynchronize(), c.name.c_str());
    if (!verify_fuxi(problem, 1 << 30) || !repeats(problem, 3)) ++failures;
    ++cases;
  };
  Case c = both_maps();
  c.lengths = odd;
  c.heads = 3;
  c.alpha = 0.7;
  for (const int width : {128, 64, 32, 16, 48, 96, 200, 256}) {
    if (few && width != 128 && width != 48) continue;
    c.name = "width " + std::to_string(width);
    c.query_width = c.value_width = width;
    run(c);
  }
  c = both_maps();
  c.lengths = {300, 517, 1000, 40};
  c.heads = 2;
  c.query_width = 64;
  c.value_width = 128;
  c.name = "dq 64 dv 128";
  run(c);
  c.query_width = 128;
  c.value_width = 64;
  c.name = "dq 128 dv 64";
  run(c);
  c.name = "unsorted times";
  c.times = Case::Times::kUnsorted;
  run(c);
  c.name = "times over 2^32";
  c.times = Case::Times::kWide;
  if (!few) run(c);
  c.times = Case::Times::kSorted;
  c.name = "no dtime";
  run(c, true, false);
  c.name = "no dposition";
  run(c, false, true);
  c.time = false;
  c.name = "position only";
  run(c);
  c.time = true;
  c.position = false;
  c.name = "time only";
  run(c);
  c.time = false;
  c.name = "no shared map";
  run(c);
  c = both_maps();
  c.name = "empty batch";
  c.lengths = {0, 0};
  c.position = false;
  run(c);
  c.name = "one token";
  c.lengths = {1};
  c.position = true;
  run(c);
  c.name = "long";
  c.lengths = few ? std::vector<int>{700} : std::vector<int>{2500, 1, 1600};
  c.heads = 4;
  c.query_width = c.value_width = 128;
  run(c);
  std::printf("%d of %d cases good\n", cases - failures, cases);
  return failures == 0 ? 0 : 1;
}

int time(const std::vector<std::string>& words) {
  const AttentionTimeOptions options = read_time_options(words, "--maps", "both");
  TGR_CHECK(options.pass == "both", "pass '", options.pass, "', this program times both");
  const Case& c = options.c;
  FuxiProblem problem(c, static_cast<std::uint64_t>(std::random_device{}()), true);
  if (!options.table_gradients) problem.params.dposition = problem.params.dtime = nullptr;
  const FuxiParams& p = problem.params;
  cuda::plan_fuxi(p);
  cuda::fuxi_forward(p);
  cuda::fuxi_backward(p);
  check(cudaDeviceSynchronize(), "fuxi");
  if (!verify_fuxi(problem, 1000) || !repeats(problem, 3)) return 1;

  const int products = 1 + c.position + c.time;
  const double flops =
      causal_pairs(c.lengths) * c.heads * 2.0 * (c.query_width + products * c.value_width);
  const double plan_ms = median_ms([&] { cuda::plan_fuxi(p); }, 21);
  const double forward_ms = median_ms([&] { cuda::fuxi_forward(p); }, 31);
  const double backward_ms = median_ms([&] { cuda::fuxi_backward(p); }, 21);
  const double both_rate = 3 * flops / (forward_ms + backward_ms) * 1e-9;
  std::printf(
      "%-14s maps %-8s tables %d plan %.4f ms  forward %.4f ms %.1f TFLOP/s  backward %.4f ms %.1f "
      "TFLOP/s  together %.1f TFLOP/s\n",
      c.name.c_str(), options.tables.c_str(), options.table_gradients, plan_ms, forward_ms,
      flops / forward_ms * 1e-9, backward_ms, 2 * flops / backward_ms * 1e-9, both_rate);
  append_json(options.json,
              "{\"name\": \"%s\", \"maps\": \"%s\", \"tokens\": %lld, \"heads\": %d, \"width\": "
              "%d, \"plan_ms\": %.5f, \"forward_ms\": %.5f, \"backward_ms\": %.5f, \"tflops\": "
              "%.2f}\n",
              c.name.c_str(), options.tables.c_str(), static_cast<long long>(problem.tokens),
              c.heads, c.query_width, plan_ms, forward_ms, backward_ms, both_rate);
  return 0;
}

}  // namespace
}  // namespace turbogr::bench

int main(int argc, char** argv) {
  namespace bench = turbogr::bench;
  return bench::attention_program(
      argc, argv,
      "fuxi_bench test [few] | time --lengths FILE|uniform:L:B|random:LOW:HIGH:B --heads H "
      "--head-dim D",
      [](const auto& words) { return bench::test(!words.empty() && words[0] == "few"); },
      [](const auto& words) { return bench::time(words); });
}
