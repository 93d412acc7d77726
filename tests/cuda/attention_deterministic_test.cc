// Deterministic backward calls on the Hopper kernels: right, and the same bits every time.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/hopper_attention.h"

namespace turbogr::test {
namespace {

constexpr GpuRun kDeterministic = {.aligned = true, .deterministic = true};

class GpuDeterministicAttention : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    TGR_SKIP_WITHOUT_GPU();
    if (!hopper_there(kind())) GTEST_SKIP() << "no Hopper GPU";
  }
  static ops::AttentionKind kind() {
    return GetParam() ? ops::AttentionKind::kFuxi : ops::AttentionKind::kHstu;
  }

  static void check(AttentionCase shape, const GpuRun& run = kDeterministic) {
    shape.fuxi = GetParam();
    expect_hopper_matches(shape, run);
  }

  // Twenty calls, most of them while calls on another stream take multiprocessors away, so that
  // work is done in another order.
  static void expect_same_bits_always(AttentionCase shape) {
    shape.fuxi = GetParam();
    const AttentionInputs<bf16> in = attention_inputs<bf16>(shape);
    const AttentionInputs<bf16> other_in =
        attention_inputs<bf16>({.lengths = {600, 300, 900}, .heads = 2, .dq = 64, .dv = 64});
    const Context ctx({.device = Device::kCuda});
    const Context other_ctx({.device = Device::kCuda});
    const Cuda cuda{ctx.stream(), ctx.workspace()};
    GpuAttention<bf16> other(other_ctx, other_in, {.aligned = true});
    const auto call = [&](int others) {
      GpuAttention<bf16> gpu(ctx, in, kDeterministic);
      EXPECT_TRUE(ops::hopper_attention(cuda, kind(), gpu.problem(), gpu.out()));
      for (int i = 0; i < others; ++i) other.run(other_ctx);
      EXPECT_TRUE(
          ops::hopper_attention_backward(cuda, kind(), gpu.problem(), gpu.dout(), gpu.gradients()));
      return gpu.results(ctx);
    };
    const AttentionResults first = call(0);
    for (int i = 0; i < 20; ++i) expect_same_bits(first, call(i % 4));
  }
};

TEST_P(GpuDeterministicAttention, MatchesTheReferenceAtEveryHeadWidth) {
  std::vector<std::pair<std::int64_t, std::int64_t>> widths = {{40, 24}, {96, 128}, {256, 64}};
  for (std::int64_t width = 8; width <= 256; width += 8) widths.emplace_back(width, width);
  for (const auto& [dq, dv] : widths) {
    SCOPED_TRACE(std::to_string(dq) + " " + std::to_string(dv));
    check({.lengths = {150, 0, 1, 65, 200}, .heads = 2, .dq = dq, .dv = dv, .norm_length = 100});
  }
}

TEST_P(GpuDeterministicAttention, MatchesTheReferenceAtEveryLength) {
  for (const std::int64_t width : {32, 64, 128, 256}) {
    for (const std::int64_t length : {1, 63, 64, 65, 127, 128, 129, 191, 193, 257, 513}) {
      for (const bool tables : {false, true}) {
        SCOPED_TRACE(std::to_string(width) + " " + std::to_string(length) + " " +
                     std::to_string(tables));
        check({.lengths = {length},
               .heads = 1,
               .dq = width,
               .dv = width,
               .position = tables,
               .time = tables,
               .norm_length = 100});
      }
    }
  }
}

TEST_P(GpuDeterministicAttention, SumsManyHeads) {
  for (const int heads : {3, 8, 24}) {
    SCOPED_TRACE(heads);
    check({.lengths = {300, 40}, .heads = heads, .dq = 32, .dv = 32, .norm_length = 100});
  }
}

TEST_P(GpuDeterministicAttention, TakesTimesOfAnyOrderAndSize) {
  for (const Times times : {Times::kSorted, Times::kEqual, Times::kBackwards, Times::kShuffled,
                            Times::kMilliseconds, Times::kHuge}) {
    SCOPED_TRACE(static_cast<int>(times));
    const AttentionCase shape = {
        .lengths = {250, 9}, .dq = 64, .dv = 64, .times = times, .norm_length = 100};
    check(shape);
    expect_same_bits_always(shape);
  }
}

TEST_P(GpuDeterministicAttention, FollowsWindowsAndTargets) {
  if (GetParam()) GTEST_SKIP() << "causal kernels: other masks run on the portable ones";
  for (const std::int64_t width : {32, 64, 128, 256}) {
    for (const std::int64_t window : {0, 1, 70}) {
      for (const bool tables : {false, true}) {
        SCOPED_TRACE(std::to_string(width) + " " + std::to_string(window) + std::to_string(tables));
        AttentionCase shape = {
            .lengths = {300, 128, 5, 0, 1, 170}, .dq = width, .dv = width, .window = window};
        shape.position = shape.time = tables;
        shape.targets = {10, 121, 0, 0, 1, 66};
        check(shape, {.aligned = true, .planned = tables, .deterministic = true});
      }
    }
  }
}

TEST_P(GpuDeterministicAttention, GivesTheSameBitsEveryTime) {
  for (const std::int64_t width : {32, 64, 128, 256}) {
    for (const bool tables : {false, true}) {
      SCOPED_TRACE(std::to_string(width) + " " + std::to_string(tables));
      // Long sequences, and short ones that share tiles.
      AttentionCase shape = {
          .lengths = {700, 0, 300, 20, 3, 64, 9}, .heads = 3, .dq = width, .dv = width};
      shape.position = shape.time = tables;
      expect_same_bits_always(shape);
    }
  }
}

TEST_P(GpuDeterministicAttention, GivesTheSameBitsForManyShortSequences) {
  AttentionCase shape = {.heads = 2, .dq = 64, .dv = 64};
  for (std::int64_t i = 0; i < 900; ++i) shape.lengths.push_back(i * 7 % 23);
  expect_same_bits_always(shape);
}

// Counts and exact sums are integers, which know no infinity.
TEST_P(GpuDeterministicAttention, DoesNotHideWhatIsNotFinite) {
  for (const std::int64_t length : {300, 30}) {
    SCOPED_TRACE(length);
    AttentionInputs<bf16> in = attention_inputs<bf16>(
        {.fuxi = GetParam(), .lengths = {length}, .heads = 2, .dq = 64, .dv = 64});
    const View<bf16, 2> dout = in.dout.view<bf16, 2>();
    for (std::int64_t c = 0; c < dout.shape[1]; ++c) {
      dout(20, c) = bf16(std::numeric_limits<float>::infinity());
    }
    const AttentionResults results = run_attention_on_gpu(in, kDeterministic);
    for (const Tensor* table : {&results.dposition, &results.dtime}) {
      bool finite = true;
      for (std::int64_t i = 0; i < table->size(); ++i) finite &= std::isfinite(element(*table, i));
      EXPECT_FALSE(finite);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GpuDeterministicAttention, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Fuxi" : "Hstu"; });

}  // namespace
}  // namespace turbogr::test
