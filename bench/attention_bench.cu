// Checks and times HSTU attention on the GPU. Needs nothing but the NVIDIA driver.
//
//   attention_bench test
//   attention_bench time --lengths FILE|uniform:L:B|random:LOW:HIGH:B --heads H --head-dim D
//                        [--bias none|position|time|both] [--times sorted|unsorted]
//                        [--pass both|forward] [--table-gradients yes|no] [--deterministic no|yes]
//                        [--pair-room UNITS] [--name NAME] [--json FILE]
//
// `test` does both backward passes, all pairs at once and in bands, and looks for a bit that
// differs in 20 calls of the deterministic one, made while other calls come and go on the GPU.
// `time` checks a sample of the results first. FLOPs are those of the causal half: forward
// n (n + 1) / 2 * H * 2 * (dq + dv) a sequence, backward 2.5 times that.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "bench/attention_judge.cuh"
#include "bench/attention_problem.cuh"
#include "bench/attention_reference.cuh"
#include "bench/attention_timing.cuh"
#include "turbogr/ops/attention/hopper/attention.h"

namespace turbogr::bench {
namespace {

using Case = AttentionProblemCase;
using cuda::AttentionParams;

struct HstuProblem : AttentionProblem<AttentionParams> {
  HstuProblem(const Case& c, std::uint64_t seed, bool exact_rows)
      : AttentionProblem(c, {.maps = 1, .table_start = 0}, seed, exact_rows) {
    params.max_length = max_length;
    params.pair_room = c.pair_room;
    add_workspace(cuda::attention_backward_workspace_bytes(params));
  }
};

bool verify_hstu(const HstuProblem& problem, bool backward, std::int64_t most) {
  // The reference rounds a pair's gradient in each head; summing H of them in bf16 rounds H growing
  // sums more, with 1 + (H + 1) / 2 times the variance.
  const double table_slack = std::sqrt(1 + (problem.c.heads + 1) / 2.0);
  return verify(problem, backward, most, table_slack,
                [&](bool plain, const ReferenceSamples& samples, const References& to) {
                  ReferenceArgs args{problem.params,
                                     samples.token_sequence,
                                     static_cast<int>(samples.count),
                                     samples.step,
                                     to.out.data(),
                                     to.dq.data(),
                                     to.dk.data(),
                                     to.dv.data(),
                                     samples.step == 1 ? to.dposition.data() : nullptr,
                                     samples.step == 1 ? to.dtime.data() : nullptr};
                  if (!backward) args.p.dout = nullptr;
                  const auto blocks = static_cast<unsigned>(samples.count);
                  const auto run = [&](auto query_kernel, auto key_kernel) {
                    query_kernel<<<blocks, kReferenceThreads>>>(args);
                    if (backward) key_kernel<<<blocks, kReferenceThreads>>>(args);
                  };
                  if (plain) {
                    run(reference_kernel<true, true>, reference_kernel<true, false>);
                  } else {
                    run(reference_kernel<false, true>, reference_kernel<false, false>);
                  }
                });
}

// All results of backward calls, as bytes.
std::vector<char> gradient_bytes(const HstuProblem& problem) {
  std::vector<char> bytes;
  const auto append = [&](const auto& array) {
    const auto host = array.to_host();
    const auto* data = reinterpret_cast<const char*>(host.data());
    bytes.insert(bytes.end(), data, data + host.size() * sizeof(host[0]));
  };
  append(problem.dq);
  append(problem.dk);
  append(problem.dv);
  append(problem.dposition);
  append(problem.dtime);
  return bytes;
}

// Whether 20 deterministic calls give the same bits, while a call on another stream takes
// multiprocessors away, so that work is done in another order.
bool repeats(HstuProblem& problem) {
  if (!problem.c.deterministic) return true;
  Case noise;
  noise.lengths = {700, 300, 900};
  noise.heads = 2;
  HstuProblem other(noise, 3, true);
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  other.params.stream = stream;
  cuda::plan_attention(other.params);
  const auto call = [&](int noisy) {
    problem.poison();
    check(cudaDeviceSynchronize(), "poison");
    for (int i = 0; i < noisy; ++i) cuda::attention_backward(other.params);
    cuda::plan_attention(problem.params);
    cuda::attention_backward(problem.params);
    check(cudaDeviceSynchronize(), "attention");
    return gradient_bytes(problem);
  };
  const std::vector<char> first = call(0);
  int different = 0;
  for (int i = 0; i < 20; ++i) different += call(i % 5) != first ? 1 : 0;
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  if (different > 0) {
    std::printf("  %s: %d of 20 calls gave other bits WRONG\n", problem.c.name.c_str(), different);
  }
  return different == 0;
}

int test() {
  const std::vector<int> odd = {1, 65, 0, 130, 64, 200, 3, 128, 0, 257, 90};
  int failures = 0;
  int cases = 0;
  const auto run_mode = [&](const Case& c) {
    HstuProblem problem(c, 31 + static_cast<std::uint64_t>(cases), false);
    cuda::plan_attention(problem.params);
    // Twice: the work list must be good for more than one call.
    cuda::attention_forward(problem.params);
    problem.poison();
    cuda::attention_forward(problem.params);
    cuda::attention_backward(problem.params);
    check(cudaDeviceSynchronize(), c.name.c_str());
    if (!verify_hstu(problem, true, 1 << 30) || !repeats(problem)) ++failures;
    ++cases;
  };
  const auto run_passes = [&](Case c) {
    run_mode(c);
    c.deterministic = true;
    c.name += " deterministic";
    run_mode(c);
  };
  const auto run = [&](Case c) {
    run_passes(c);
    if (!c.position && !c.time) return;
    c.pair_room = 5;
    c.name += " in bands";
    run_passes(c);
  };
  for (const int width : {128, 64, 32, 16, 48, 96, 200, 256}) {
    for (const int bias : {0, 3}) {
      Case c;
      c.name = "width " + std::to_string(width) + " bias " + std::to_string(bias);
      c.lengths = odd;
      c.heads = 3;
      c.query_width = c.value_width = width;
      c.position = bias & 1;
      c.time = bias & 2;
      c.alpha = 0.7;
      run(c);
    }
  }
  Case c;
  c.lengths = {300, 517, 1000, 40};
  c.heads = 2;
  c.query_width = 64;
  c.value_width = 128;
  c.name = "dq 64 dv 128";
  run(c);
  c.position = true;
  c.name = "position only";
  run(c);
  c.position = false;
  c.time = true;
  c.name = "time only";
  run(c);
  c.times = Case::Times::kMilliseconds;
  c.name = "times times 3";
  run(c);
  c.times = Case::Times::kUnsorted;
  c.name = "unsorted times";
  run(c);
  c.times = Case::Times::kWide;
  c.name = "times over 2^32";
  run(c);
  c = {};
  c.name = "empty batch";
  c.lengths = {0, 0};
  run(c);
  c.name = "one token";
  c.lengths = {1};
  c.position = c.time = true;
  run(c);
  std::printf("%d of %d cases good\n", cases - failures, cases);
  return failures == 0 ? 0 : 1;
}

int time(const std::vector<std::string>& words) {
  const AttentionTimeOptions options = read_time_options(words, "--bias", "none");
  const Case& c = options.c;
  HstuProblem problem(c, static_cast<std::uint64_t>(std::random_device{}()), true);
  if (!options.table_gradients) problem.params.dposition = problem.params.dtime = nullptr;
  const AttentionParams& p = problem.params;
  const bool backward = options.pass == "both";
  cuda::plan_attention(p);
  cuda::attention_forward(p);
  if (backward) cuda::attention_backward(p);
  check(cudaDeviceSynchronize(), "attention");
  if (!verify_hstu(problem, backward, 2000)) return 1;

  const double flops = causal_pairs(c.lengths) * c.heads * 2.0 * (c.query_width + c.value_width);
  const double plan_ms = median_ms([&] { cuda::plan_attention(p); }, 21);
  const double forward_ms = median_ms([&] { cuda::attention_forward(p); }, 31);
  const double backward_ms = backward ? median_ms([&] { cuda::attention_backward(p); }, 21) : 0;
  const double forward_rate = flops / forward_ms * 1e-9;
  const double backward_rate = backward ? 2.5 * flops / backward_ms * 1e-9 : 0;
  std::printf(
      "%-10s bias %-8s%s plan %.4f ms  forward %.4f ms %.1f TFLOP/s  backward %.4f ms %.1f TFLOP/s "
      " "
      "workspace %.1f MB\n",
      c.name.c_str(), options.tables.c_str(), c.deterministic ? " deterministic" : "", plan_ms,
      forward_ms, forward_rate, backward_ms, backward_rate,
      static_cast<double>(p.workspace_bytes) * 1e-6);
  append_json(options.json,
              "{\"name\": \"%s\", \"bias\": \"%s\", \"deterministic\": %s, \"tokens\": %lld, "
              "\"heads\": %d, \"width\": %d, "
              "\"plan_ms\": %.5f, \"forward_ms\": %.5f, \"forward_tflops\": %.2f, "
              "\"backward_ms\": %.5f, \"backward_tflops\": %.2f, \"workspace_bytes\": %zu}\n",
              c.name.c_str(), options.tables.c_str(), c.deterministic ? "true" : "false",
              static_cast<long long>(problem.tokens), c.heads, c.query_width, plan_ms, forward_ms,
              forward_rate, backward_ms, backward_rate, p.workspace_bytes);
  return 0;
}

}  // namespace
}  // namespace turbogr::bench

int main(int argc, char** argv) {
  namespace bench = turbogr::bench;
  return bench::attention_program(
      argc, argv,
      "attention_bench test | time --lengths FILE|uniform:L:B|random:LOW:HIGH:B --heads H "
      "--head-dim D",
      [](const auto&) { return bench::test(); },
      [](const auto& words) { return bench::time(words); });
}
