// HSTU attention whose pairs are taken band by band gives what it gives with all pairs at once.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/hopper_attention.h"
#include "turbogr/ops/attention/hopper/attention.h"

namespace turbogr::test {
namespace {

using cuda::AttentionParams;

class GpuAttentionBands : public ::testing::Test {
 protected:
  void SetUp() override {
    TGR_SKIP_WITHOUT_GPU();
    if (!hopper_there(ops::AttentionKind::kHstu)) GTEST_SKIP() << "no Hopper GPU";
  }
};

// The kernels' own interface: a band's room is nothing that callers of the operator say.
AttentionResults run(const AttentionCase& shape, std::int64_t room, bool deterministic) {
  const AttentionInputs<bf16> in = attention_inputs<bf16>(shape);
  const Context ctx({.device = Device::kCuda});
  GpuAttention<bf16> gpu(ctx, in, {.aligned = true, .deterministic = deterministic});
  const ops::AttentionProblem<bf16> problem = gpu.problem();
  const ops::AttentionGradients<bf16> gradients = gpu.gradients();
  AttentionParams p;
  p.q = problem.q.values.data;
  p.k = problem.k.data;
  p.v = problem.v.data;
  p.out = gpu.out().data;
  p.dout = gpu.dout().data;
  p.dq = gradients.dq.data;
  p.dk = gradients.dk.data;
  p.dv = gradients.dv.data;
  p.q_stride = problem.q.values.stride;
  p.k_stride = problem.k.stride;
  p.v_stride = problem.v.stride;
  p.out_stride = gpu.out().stride;
  p.dout_stride = gpu.dout().stride;
  p.dq_stride = gradients.dq.stride;
  p.dk_stride = gradients.dk.stride;
  p.dv_stride = gradients.dv.stride;
  p.offsets = problem.q.offsets.data;
  p.tokens = problem.q.tokens();
  p.batch = static_cast<int>(problem.q.batch());
  p.heads = problem.heads;
  p.query_width = static_cast<int>(shape.dq);
  p.value_width = static_cast<int>(shape.dv);
  p.alpha = problem.alpha;
  p.norm_length = problem.norm_length;
  p.position = problem.bias.position.data;
  p.position_length = (problem.bias.position.shape[0] + 1) / 2;
  p.time = problem.bias.time.data;
  p.key_times = problem.bias.key_times.data;
  p.query_times = problem.bias.query_times.data;
  p.dposition = gradients.dbias.position.data;
  p.dtime = gradients.dbias.time.data;
  p.window = problem.mask.window;
  p.num_targets = problem.mask.num_targets.data;
  p.max_length = problem.max_length;
  p.pair_room = room;
  p.deterministic = deterministic;
  p.stream = ctx.stream();
  // What nobody writes must not matter.
  const auto bytes = static_cast<std::int64_t>(cuda::attention_backward_workspace_bytes(p));
  Tensor garbage(DType::kU8, {bytes});
  for (std::int64_t i = 0; i < bytes; ++i) garbage.data()[i] = std::byte{0xff};
  Tensor workspace = place(ctx, garbage);
  p.workspace = workspace.data();
  p.workspace_bytes = static_cast<std::size_t>(bytes);
  EXPECT_EQ(cuda::attention_pair_bias_bytes(p) == 0, room != 0);
  cuda::plan_attention(p);
  cuda::attention_forward(p);
  cuda::attention_backward(p);
  return gpu.results(ctx);
}

void expect_equal(const AttentionCase& shape) {
  for (const bool deterministic : {false, true}) {
    const AttentionResults all = run(shape, 0, deterministic);
    // A tile a band, and several.
    for (const std::int64_t room : {5, 20}) {
      SCOPED_TRACE(std::to_string(room) + (deterministic ? " deterministic" : ""));
      const AttentionResults bands = run(shape, room, deterministic);
      EXPECT_EQ(max_error(all.out, bands.out), 0);
      EXPECT_EQ(max_error(all.dk, bands.dk), 0);
      EXPECT_EQ(max_error(all.dv, bands.dv), 0);
      const auto near = [](const Tensor& a, const Tensor& b, double bound) {
        const double size = root_mean_square(a, Tensor(a.dtype(), a.shape()));
        EXPECT_LE(root_mean_square(a, b), bound * size);
      };
      // Sums of f32 in any order, then bf16; and dS over heads in bf16 in any order.
      near(all.dq, bands.dq, deterministic ? 0 : 0x1p-9);
      near(all.dposition, bands.dposition, deterministic ? 1e-5 : 0x1p-7);
      near(all.dtime, bands.dtime, deterministic ? 1e-5 : 0x1p-7);
      if (deterministic) expect_same_bits(bands, run(shape, room, deterministic));
    }
  }
}

TEST_F(GpuAttentionBands, AreAsGoodAsAllPairsAtEveryWidth) {
  for (const auto& [dq, dv] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {32, 32}, {64, 64}, {64, 24}, {128, 128}, {96, 128}, {256, 256}, {200, 256}}) {
    SCOPED_TRACE(std::to_string(dq) + " " + std::to_string(dv));
    expect_equal({.lengths = {500, 3, 0, 129, 64, 65, 40, 700, 128},
                  .heads = 3,
                  .dq = dq,
                  .dv = dv,
                  .norm_length = 100});
  }
}

TEST_F(GpuAttentionBands, FollowMasks) {
  for (const std::int64_t width : {32, 64, 128, 256}) {
    for (const std::int64_t window : {0, 1, 130}) {
      for (const bool targets : {false, true}) {
        for (const bool tables : {false, true}) {
          if (!tables && !targets && window == 0) continue;
          SCOPED_TRACE(std::to_string(width) + " " + std::to_string(window) + " " +
                       std::to_string(targets) + std::to_string(tables));
          AttentionCase shape = {
              .lengths = {600, 128, 5, 0, 1, 170}, .dq = width, .dv = width, .window = window};
          shape.position = shape.time = tables;
          if (targets) shape.targets = {200, 121, 0, 0, 1, 66};
          expect_equal(shape);
        }
      }
    }
  }
}

TEST_F(GpuAttentionBands, TakeTimesOfAnyOrderAndSize) {
  for (const Times times : {Times::kSorted, Times::kEqual, Times::kBackwards, Times::kShuffled,
                            Times::kMilliseconds, Times::kHuge}) {
    SCOPED_TRACE(static_cast<int>(times));
    expect_equal({.lengths = {450, 9, 200}, .dq = 64, .dv = 64, .times = times});
  }
}

TEST_F(GpuAttentionBands, ServeOneTableAlone) {
  for (const bool position : {false, true}) {
    AttentionCase shape = {.lengths = {333, 90, 20}, .heads = 2, .dq = 128, .dv = 128};
    shape.position = position;
    shape.time = !position;
    expect_equal(shape);
  }
}

}  // namespace
}  // namespace turbogr::test
