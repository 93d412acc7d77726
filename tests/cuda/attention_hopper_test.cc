#include "turbogr/ops/attention/hopper/attention_hopper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/hopper_attention.h"

namespace turbogr::test {
namespace {

class GpuHopperAttention : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    TGR_SKIP_WITHOUT_GPU();
    if (!hopper_there(kind())) GTEST_SKIP() << "no Hopper GPU, or no kernel of this model for it";
  }
  static ops::AttentionKind kind() {
    return GetParam() ? ops::AttentionKind::kFuxi : ops::AttentionKind::kHstu;
  }

  static void check(AttentionCase shape, const GpuRun& run = {.aligned = true}) {
    shape.fuxi = GetParam();
    expect_hopper_matches(shape, run);
  }
};

TEST_P(GpuHopperAttention, MatchesTheReferenceAtEveryHeadWidth) {
  std::vector<std::pair<std::int64_t, std::int64_t>> widths = {{40, 24}, {96, 128}, {256, 64}};
  for (std::int64_t width = 8; width <= 256; width += 8) widths.emplace_back(width, width);
  for (const auto& [dq, dv] : widths) {
    SCOPED_TRACE(std::to_string(dq) + " " + std::to_string(dv));
    check({.lengths = {150, 0, 1, 65, 200}, .heads = 2, .dq = dq, .dv = dv, .norm_length = 100});
  }
}

TEST_P(GpuHopperAttention, MatchesTheReferenceAtEveryLength) {
  for (const std::int64_t length : {1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 257, 513}) {
    SCOPED_TRACE(length);
    check({.lengths = {length}, .heads = 1, .dq = 64, .dv = 64, .norm_length = 100});
  }
}

TEST_P(GpuHopperAttention, UsesTheTablesItIsGiven) {
  for (const bool position : {false, true}) {
    for (const bool time : {false, true}) {
      SCOPED_TRACE(std::to_string(position) + std::to_string(time));
      check({.lengths = {290, 20},
             .heads = 2,
             .dq = 64,
             .dv = 64,
             .position = position,
             .time = time,
             .norm_length = 100});
    }
  }
}

TEST_P(GpuHopperAttention, TakesTimesOfAnyOrderAndSize) {
  for (const Times times : {Times::kSorted, Times::kEqual, Times::kBackwards, Times::kShuffled,
                            Times::kMilliseconds, Times::kHuge}) {
    SCOPED_TRACE(static_cast<int>(times));
    check({.lengths = {250, 9}, .dq = 64, .dv = 64, .times = times, .norm_length = 100});
  }
}

TEST_P(GpuHopperAttention, FollowsWindowsAndTargetsAloneAndTogether) {
  if (GetParam()) GTEST_SKIP() << "causal kernels: other masks run on the portable ones";
  const std::vector<std::int64_t> lengths = {300, 128, 5, 0, 1, 170};
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t width : {32, 64, 128, 256}) {
    for (const std::int64_t window :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{70}, kLargest}) {
      for (const bool targets : {false, true}) {
        for (const bool tables : {false, true}) {
          if (!tables && !targets && window == 0) continue;
          SCOPED_TRACE(std::to_string(width) + " " + std::to_string(window) + " " +
                       std::to_string(targets) + std::to_string(tables));
          AttentionCase shape = {.lengths = lengths, .dq = width, .dv = width, .window = window};
          shape.position = shape.time = tables;
          if (targets) shape.targets = {10, 121, 0, 0, 1, 66};
          check(shape, {.aligned = true, .planned = tables});
        }
      }
    }
  }
}

TEST_P(GpuHopperAttention, LeavesAPrefixToThePortableKernels) {
  const AttentionInputs<bf16> in = attention_inputs<bf16>(
      {.fuxi = GetParam(), .lengths = {40, 3}, .dq = 64, .dv = 64, .prefix = {5, 0}});
  const Context ctx({.device = Device::kCuda});
  GpuAttention<bf16> gpu(ctx, in, {.aligned = true});
  const Cuda cuda{ctx.stream(), ctx.workspace()};
  EXPECT_FALSE(ops::hopper_attention(cuda, kind(), gpu.problem(), gpu.out()));
}

TEST_P(GpuHopperAttention, BringsInTheDerivativeOfSilu) {
  if (GetParam()) GTEST_SKIP() << "HSTU's only";
  for (const bool deterministic : {false, true}) {
    for (const std::int64_t width : {24, 32, 64, 128, 256}) {
      SCOPED_TRACE(std::to_string(width) + " " + std::to_string(deterministic));
      const GpuRun gpu_run = {.aligned = true, .deterministic = deterministic};
      const AttentionInputs<bf16> in = attention_inputs<bf16>(
          {.lengths = {150, 0, 1, 65}, .heads = 2, .dq = width, .dv = width, .norm_length = 100});
      const Context ctx({.device = Device::kCuda});
      const Cuda cuda{ctx.stream(), ctx.workspace()};
      const auto run = [&](bool before) {
        GpuAttention<bf16> gpu(ctx, in, gpu_run);
        const ops::AttentionProblem<bf16> p = gpu.problem();
        ops::AttentionGradients<bf16> gradients = gpu.gradients();
        // Any rows will do: here q itself.
        if (before) gradients.q_before = p.q.values;
        EXPECT_TRUE(ops::hopper_attention(cuda, kind(), p, gpu.out()));
        EXPECT_TRUE(ops::hopper_attention_backward(cuda, kind(), p, gpu.dout(), gradients));
        return gpu.results(ctx);
      };
      const AttentionResults without = run(false);
      const AttentionResults with = run(true);
      const Rows<const bf16> before = in.problem().q.values;
      double error = 0;
      double norm = 0;
      for (std::int64_t i = 0; i < with.dq.size(); ++i) {
        const auto x =
            static_cast<double>(static_cast<float>(before(i / before.cols, i % before.cols)));
        const double s = 1 / (1 + std::exp(-x));
        const double wanted = element(without.dq, i) * s * (1 + x * (1 - s));
        error += (element(with.dq, i) - wanted) * (element(with.dq, i) - wanted);
        norm += wanted * wanted;
      }
      EXPECT_GT(norm, 0);
      // Two roundings to bf16, and the sums come in any order.
      EXPECT_LE(std::sqrt(error), 0x1p-8 * std::sqrt(norm));
      EXPECT_EQ(max_error(without.dk, with.dk), 0);
      EXPECT_EQ(max_error(without.dv, with.dv), 0);
    }
  }
}

TEST_P(GpuHopperAttention, KeepsTheBiasForTheBackwardCall) {
  if (GetParam()) GTEST_SKIP() << "HSTU's only";
  for (const std::int64_t width : {32, 64, 128, 256}) {
    SCOPED_TRACE(width);
    const AttentionInputs<bf16> in = attention_inputs<bf16>(
        {.lengths = {150, 0, 1, 65}, .heads = 2, .dq = width, .dv = width, .norm_length = 100});
    const Context ctx({.device = Device::kCuda});
    const Cuda cuda{ctx.stream(), ctx.workspace()};
    const auto run = [&](std::int64_t bytes) {
      GpuAttention<bf16> gpu(ctx, in, {.aligned = true});
      ops::AttentionProblem<bf16> p = gpu.problem();
      Tensor kept(DType::kU8, {bytes}, Device::kCuda);
      p.kept = {kept.data(), {bytes}};
      EXPECT_TRUE(ops::hopper_attention(cuda, kind(), p, gpu.out()));
      const Tensor host = to_host(ctx, kept);
      const bool written = std::any_of(host.data(), host.data() + host.bytes(),
                                       [](std::byte byte) { return byte != std::byte{0}; });
      EXPECT_EQ(written, bytes >= 1 << 20);
      EXPECT_TRUE(ops::hopper_attention_backward(cuda, kind(), p, gpu.dout(), gpu.gradients()));
      return gpu.results(ctx);
    };
    // Room for all units of 216 tokens, or too little.
    const AttentionResults with = run(1 << 20);
    const AttentionResults without = run(1 << 10);
    EXPECT_EQ(max_error(without.out, with.out), 0);
    EXPECT_EQ(max_error(without.dk, with.dk), 0);
    EXPECT_EQ(max_error(without.dv, with.dv), 0);
  }
}

TEST_P(GpuHopperAttention, GivesTheSameWithAPlanMadeBeforehand) {
  AttentionCase shape = {
      .fuxi = GetParam(), .lengths = {150, 0, 300}, .heads = 2, .dq = 64, .dv = 64};
  const AttentionInputs<bf16> in = attention_inputs<bf16>(shape);
  const AttentionResults own = run_attention_on_gpu(in, {.aligned = true});
  const AttentionResults planned = run_attention_on_gpu(in, {.aligned = true, .planned = true});
  EXPECT_EQ(max_error(own.out, planned.out), 0);
  check(shape, {.aligned = true, .planned = true});
}

TEST_P(GpuHopperAttention, RefusesAPlanOfAnotherBatch) {
  AttentionCase shape = {.fuxi = GetParam(), .lengths = {150}, .dq = 64, .dv = 64};
  const AttentionInputs<bf16> in = attention_inputs<bf16>(shape);
  const Context ctx({.device = Device::kCuda});
  GpuAttention<bf16> gpu(ctx, in, {.aligned = true, .planned = true});
  ops::AttentionProblem<bf16> p = gpu.problem();
  ops::AttentionPlan other = *p.plan;
  other.shape.tokens = 149;
  p.plan = &other;
  const Cuda cuda{ctx.stream(), ctx.workspace()};
  EXPECT_THROW(ops::hopper_attention(cuda, kind(), p, gpu.out()), Error);
}

TEST_P(GpuHopperAttention, LeavesABatchWithAnEmptyPlanToThePortableKernels) {
  AttentionCase shape = {.fuxi = GetParam(), .lengths = {150, 3}, .dq = 64, .dv = 64};
  const AttentionInputs<bf16> in = attention_inputs<bf16>(shape);
  const Context ctx({.device = Device::kCuda});
  GpuAttention<bf16> gpu(ctx, in, {.aligned = true});
  Tensor none(DType::kU8, {0}, Device::kCuda);
  ops::AttentionProblem<bf16> p = gpu.problem();
  const ops::AttentionPlan empty = ops::make_attention_plan<bf16>(
      ctx, kind(), {p.q.offsets, p.bias.key_times, p.bias.query_times},
      {.device = Device::kCuda, .tokens = 153, .batch = 2, .query_width = 64, .value_width = 64},
      none);
  EXPECT_EQ(empty.bytes, 0u);
  p.plan = &empty;
  const Cuda cuda{ctx.stream(), ctx.workspace()};
  EXPECT_FALSE(ops::hopper_attention(cuda, kind(), p, gpu.out()));
}

INSTANTIATE_TEST_SUITE_P(Models, GpuHopperAttention, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Fuxi" : "Hstu"; });

}  // namespace
}  // namespace turbogr::test
