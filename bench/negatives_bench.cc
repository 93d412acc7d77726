#include "bench/negatives_bench.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>

#include "bench/materialised_softmax.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/philox.h"
#include "turbogr/ops/sampled_softmax.h"

namespace turbogr::bench {
namespace {

constexpr int kLeastRuns = 3;
constexpr double kAllowedError = 1e-4;  // of the largest value, f32

// Inputs and outputs that every path has, on the context's device.
struct Buffers {
  const Context& ctx;
  NegativesProblem problem;
  Tensor query, items, positive, negatives, dloss;
  Tensor loss, log_sum_exp, dquery, ditems;

  Buffers(const Context& ctx_in, const NegativesProblem& problem_in)
      : ctx(ctx_in),
        problem(problem_in),
        query(random(problem.tokens, problem.width, 1)),
        items(random(problem.items, problem.width, 2)),
        positive(indices({problem.tokens}, 3)),
        negatives(indices({problem.tokens, problem.negatives}, 4)),
        dloss(on_device(filled(problem.tokens, 1.0f / static_cast<float>(problem.tokens)))),
        loss(DType::kF32, {problem.tokens}, ctx.device()),
        log_sum_exp(DType::kF32, {problem.tokens}, ctx.device()),
        dquery(DType::kF32, {problem.tokens, problem.width}, ctx.device()),
        ditems(DType::kF32, {problem.items, problem.width}, ctx.device()) {}

  Tensor on_device(Tensor host) const {
    if (ctx.device() == Device::kCpu) return host;
    Tensor device(host.dtype(), host.shape(), ctx.device());
    copy_tensor(ctx, device, host);
    return device;
  }
  static Tensor filled(std::int64_t count, float value) {
    Tensor tensor(DType::kF32, {count});
    std::fill_n(tensor.view<float, 1>().data, count, value);
    return tensor;
  }
  Tensor random(std::int64_t rows, std::int64_t cols, std::uint64_t stream) const {
    Tensor tensor(DType::kF32, {rows, cols});
    PhiloxStream numbers(problem.seed, stream);
    float* data = tensor.view<float, 2>().data;
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      data[i] = static_cast<float>(2 * numbers.uniform() - 1);
    }
    return on_device(std::move(tensor));
  }
  Tensor indices(std::vector<std::int64_t> shape, std::uint64_t stream) const {
    Tensor tensor(DType::kI32, std::move(shape));
    PhiloxStream numbers(problem.seed, stream);
    auto* data = reinterpret_cast<std::int32_t*>(tensor.data());
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      data[i] = static_cast<std::int32_t>(numbers.below(static_cast<std::uint64_t>(problem.items)));
    }
    return on_device(std::move(tensor));
  }

  ops::SampledSoftmaxInputs<float> inputs(bool shared) const {
    ops::SampledSoftmaxInputs<float> in;
    in.query = query.view<float, 2>();
    in.items = items.view<float, 2>();
    in.positive = positive.view<std::int32_t, 1>();
    if (shared) {
      in.shared_negatives = {negatives.view<std::int32_t, 2>().data, {problem.negatives}};
    } else {
      in.negatives = negatives.view<std::int32_t, 2>();
    }
    return in;
  }
  // Without the negatives' indices and the log-sum-exps, which not all paths have.
  std::size_t common_bytes() const {
    return query.bytes() + items.bytes() + positive.bytes() + dloss.bytes() + loss.bytes() +
           dquery.bytes() + ditems.bytes();
  }
  std::size_t fused_bytes(bool shared) const {
    const auto set = static_cast<std::size_t>(problem.negatives) * sizeof(std::int32_t);
    return common_bytes() + log_sum_exp.bytes() + (shared ? set : negatives.bytes()) +
           workspace_bytes(shared);
  }
  std::size_t workspace_bytes(bool shared) const {
    return ops::softmax_workspace_bytes(ctx, problem.tokens, problem.items, problem.width,
                                        shared ? 0 : problem.negatives);
  }

  void run_fused(bool shared) {
    zero_bytes(ctx, ditems.data(), ditems.bytes());
    ops::sampled_softmax<float>(ctx, inputs(shared), {},
                                {loss.view<float, 1>(), log_sum_exp.view<float, 1>()});
    ops::sampled_softmax_backward<float>(
        ctx, inputs(shared), {}, std::as_const(log_sum_exp).view<float, 1>(),
        std::as_const(dloss).view<float, 1>(), dquery.view<float, 2>(), ditems.view<float, 2>());
    synchronize(ctx);
  }
  void run_materialised(MaterialisedSoftmax& rival) {
    zero_bytes(ctx, ditems.data(), ditems.bytes());
    rival.forward_backward(ctx, inputs(false), {}, std::as_const(dloss).view<float, 1>(),
                           loss.view<float, 1>(), dquery.view<float, 2>(), ditems.view<float, 2>());
  }
};

void expect_same(const char* name, const Tensor& ours, const Tensor& rival) {
  const auto* a = reinterpret_cast<const float*>(ours.data());
  const auto* b = reinterpret_cast<const float*>(rival.data());
  float largest = 0;
  float error = 0;
  for (std::int64_t i = 0; i < ours.size(); ++i) {
    largest = std::max(largest, std::abs(b[i]));
    const float gap = std::abs(a[i] - b[i]);
    if (!(gap <= error)) error = gap;  // a NaN sticks
  }
  TGR_CHECK(error <= kAllowedError * largest, "bench negatives: ", name,
            " of the fused path is off by ", error, " where values reach ", largest,
            "; a timing of wrong answers is worth nothing");
}

void check_paths(Buffers& buffers, MaterialisedSoftmax& rival) {
  buffers.run_fused(false);
  const Tensor loss = to_host(buffers.ctx, buffers.loss);
  const Tensor dquery = to_host(buffers.ctx, buffers.dquery);
  const Tensor ditems = to_host(buffers.ctx, buffers.ditems);
  buffers.run_materialised(rival);
  expect_same("loss", loss, buffers.loss);
  expect_same("query gradient", dquery, buffers.dquery);
  expect_same("item gradient", ditems, buffers.ditems);
}

}  // namespace

std::size_t available_bytes(const Context& ctx) {
  if (ctx.device() == Device::kCuda) return device_memory().free;
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;) {
    std::size_t kilobytes = 0;
    if (word == "MemAvailable:" && info >> kilobytes) return kilobytes * 1024;
  }
  return std::numeric_limits<std::size_t>::max();
}

std::vector<NegativesFigures> measure_negatives(const Context& ctx, const NegativesProblem& problem,
                                                double seconds) {
  Buffers buffers(ctx, problem);
  ctx.workspace().reserve(std::max(buffers.workspace_bytes(false), buffers.workspace_bytes(true)));
  NegativesFigures fused = {"fused", {}, buffers.fused_bytes(false)};
  NegativesFigures shared = {"shared", {}, buffers.fused_bytes(true)};
  std::vector<NegativesFigures> all;
  const auto run_fused = [&] { buffers.run_fused(false); };

  if (ctx.device() == Device::kCpu) {
    const SoftmaxSize size = {problem.tokens, problem.negatives, problem.items, problem.width};
    NegativesFigures rival = {
        "materialised",
        {},
        buffers.common_bytes() + buffers.negatives.bytes() + MaterialisedSoftmax::bytes(size)};
    if (rival.peak_bytes <= problem.memory) {
      MaterialisedSoftmax softmax(ctx, size);
      check_paths(buffers, softmax);
      const auto [ours, theirs] = time_in_turn(
          run_fused, [&] { buffers.run_materialised(softmax); }, seconds, kLeastRuns);
      fused.timing = ours;
      rival.timing = theirs;
    }
    all.push_back(rival);
  }
  if (!fused.timing)
    fused.timing = time_in_turn(
                       run_fused, [] {}, seconds, kLeastRuns)
                       .first;
  shared.timing = time_in_turn([&] { buffers.run_fused(true); }, [] {}, seconds, kLeastRuns).first;
  all.insert(all.begin(), fused);
  all.push_back(shared);
  return all;
}

}  // namespace turbogr::bench
