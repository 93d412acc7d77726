#include "bench/gpu_attention.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "bench/gpu_attention_batch.h"
#include "bench/lengths.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/data/length_table.h"

namespace turbogr::bench {
namespace {

// More than the largest GPU cache, a few times.
constexpr std::size_t kRotatedBytes = std::size_t{256} << 20;
constexpr std::size_t kMostSets = 8;
constexpr int kWarmUps = 3;

Timing time_rotated(const Context& ctx, std::size_t sets, int repeats,
                    const std::function<void(std::size_t)>& run) {
  Event begin(ctx, /*timed=*/true);
  Event end(ctx, /*timed=*/true);
  std::vector<double> samples;
  for (int i = 0; i < kWarmUps + repeats; ++i) {
    begin.record(ctx);
    run(static_cast<std::size_t>(i) % sets);
    end.record(ctx);
    end.wait();
    if (i >= kWarmUps) samples.push_back(end.ms_since(begin));
  }
  return summary_of(std::move(samples));
}

// A small batch with the same heads and tables, every result compared.
GpuAttentionProblem cut(const GpuAttentionProblem& problem) {
  GpuAttentionProblem small = problem;
  constexpr std::int64_t kLengths[] = {200, 0, 129, 1};
  small.lengths.assign(std::begin(kLengths), std::end(kLengths));
  return small;
}

template <class T>
GpuAttentionTimes measure(const Context& ctx, const GpuAttentionProblem& problem, int repeats) {
  GpuAttentionTimes times;
  times.allowed_error = sizeof(T) == 2 ? 1.5e-2 : 1e-5;
  {
    GpuAttentionBatch<T> small(ctx, cut(problem), 1);
    small.plan();
    small.forward(0);
    small.backward(0);
    times.error = small.full_error();
  }
  const std::size_t bytes = GpuAttentionBatch<T>::bytes_of(problem);
  const std::size_t sets = std::clamp<std::size_t>(kRotatedBytes / bytes + 1, 1, kMostSets);
  GpuAttentionBatch<T> batch(ctx, problem, sets);
  times.plan_bytes = batch.plan_bytes();
  batch.plan();
  batch.forward(0);
  batch.backward(0);
  times.error = std::max(times.error, batch.sampled_error());
  TGR_CHECK(times.error <= times.allowed_error,
            "attention on the GPU: wrong answer, relative error ", times.error, " where ",
            times.allowed_error, " is allowed; not timed");
  times.plan = time_rotated(ctx, 1, repeats, [&](std::size_t) { batch.plan(); });
  times.forward = time_rotated(ctx, sets, repeats, [&](std::size_t set) { batch.forward(set); });
  times.backward = time_rotated(ctx, sets, repeats, [&](std::size_t set) { batch.backward(set); });
  return times;
}

std::int64_t number(const std::string& text, const std::string& whole) {
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  TGR_CHECK(result.ec == std::errc() && result.ptr == text.data() + text.size() && value > 0,
            "lengths '", whole, "': '", text, "' is not a positive whole number");
  return value;
}

}  // namespace

std::int64_t GpuAttentionProblem::tokens() const {
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) total += length;
  return total;
}

std::int64_t GpuAttentionProblem::longest() const {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

double GpuAttentionProblem::forward_flops() const {
  double pairs = 0;
  for (const std::int64_t n : lengths) pairs += 0.5 * static_cast<double>(n * (n + 1));
  return pairs * heads * 2.0 * static_cast<double>(head_dim) * (fuxi ? 4 : 2);
}

double GpuAttentionProblem::backward_flops() const {
  return forward_flops() * (fuxi ? (2.5 + 2) / 2 : 2.5);
}

GpuAttentionTimes measure_gpu_attention(const Context& ctx, const GpuAttentionProblem& problem,
                                        int repeats) {
  TGR_CHECK(ctx.device() == Device::kCuda, "attention on a GPU needs a context of one");
  return problem.dtype == DType::kBf16 ? measure<bf16>(ctx, problem, repeats)
                                       : measure<float>(ctx, problem, repeats);
}

std::vector<std::int64_t> batch_lengths(const std::string& text) {
  const std::string uniform = "uniform:";
  if (text.rfind(uniform, 0) != 0) return data::read_length_table(text);
  const std::size_t colon = text.find(':', uniform.size());
  TGR_CHECK(colon != std::string::npos, "lengths '", text,
            "': wanted uniform:L:B, B sequences of L tokens, or a file");
  const std::int64_t length = number(text.substr(uniform.size(), colon - uniform.size()), text);
  const std::int64_t batch = number(text.substr(colon + 1), text);
  return std::vector<std::int64_t>(static_cast<std::size_t>(batch), length);
}

}  // namespace turbogr::bench
