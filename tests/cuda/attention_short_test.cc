// HSTU attention of sequences that share a tile, alone and among long ones.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/hopper_attention.h"

namespace turbogr::test {
namespace {

using Lengths = std::vector<std::int64_t>;

class GpuShortSequences : public ::testing::Test {
 protected:
  void SetUp() override {
    TGR_SKIP_WITHOUT_GPU();
    if (!hopper_there(ops::AttentionKind::kHstu)) GTEST_SKIP() << "no Hopper GPU";
  }
};

// Packs that are full, that one token does not fit into, that a long sequence or a chunk of
// sequences ends; empty sequences at every place.
std::vector<Lengths> awkward_packs() {
  Lengths many;
  for (int i = 0; i < 700; ++i) many.push_back(i % 5);
  return {{1},
          {64},
          {65},
          {63, 1, 1},
          {1, 63, 64, 64, 2},
          {32, 32, 33, 31, 1},
          {0, 0, 5, 0, 59, 0, 0},
          {64, 65, 64, 66, 1, 130, 2},
          {65, 0, 65, 1, 65},
          {17, 47, 16, 48, 15, 49, 15, 2},
          Lengths(64, 1),
          Lengths(300, 1),
          Lengths(40, 40),
          many,
          {0, 0, 0}};
}

TEST_F(GpuShortSequences, MatchTheReferenceInAwkwardPacks) {
  std::uint64_t seed = 1;
  for (const Lengths& lengths : awkward_packs()) {
    for (const bool tables : {true, false}) {
      SCOPED_TRACE(::testing::PrintToString(lengths) + (tables ? " tables" : ""));
      AttentionCase shape = {.lengths = lengths, .heads = 2, .dq = 64, .dv = 64, .seed = ++seed};
      shape.position = shape.time = tables;
      expect_hopper_matches(shape);
    }
  }
}

TEST_F(GpuShortSequences, MatchTheReferenceAtEveryHeadWidth) {
  for (std::int64_t width = 8; width <= 256; width += 8) {
    SCOPED_TRACE(width);
    expect_hopper_matches({.lengths = {3, 64, 20, 0, 9, 33, 7, 70, 1, 2},
                           .heads = 2,
                           .dq = width,
                           .dv = width,
                           .alpha = 0.7});
    expect_hopper_matches({.lengths = {30, 64, 2}, .heads = 3, .dq = width, .dv = 264 - width});
  }
}

TEST_F(GpuShortSequences, FollowEveryMask) {
  const Lengths lengths = {9, 64, 5, 0, 1, 17, 30, 40, 100, 12, 3};
  for (const std::int64_t width : {32, 64, 128, 256}) {
    for (const std::int64_t window : {std::int64_t{0}, std::int64_t{1}, std::int64_t{6},
                                      std::int64_t{63}, std::numeric_limits<std::int64_t>::max()}) {
      for (const bool targets : {false, true}) {
        for (const bool tables : {false, true}) {
          SCOPED_TRACE(std::to_string(width) + " " + std::to_string(window) + " " +
                       std::to_string(targets) + std::to_string(tables));
          AttentionCase shape = {.lengths = lengths, .dq = width, .dv = width, .window = window};
          shape.position = shape.time = tables;
          if (targets) shape.targets = {9, 20, 0, 0, 1, 3, 29, 40, 70, 1, 3};
          expect_hopper_matches(shape, {.aligned = true, .planned = tables});
        }
      }
    }
  }
}

TEST_F(GpuShortSequences, TakeTimesOfAnyOrderAndSize) {
  for (const Times times : {Times::kSorted, Times::kEqual, Times::kBackwards, Times::kShuffled,
                            Times::kMilliseconds, Times::kHuge}) {
    for (const bool position : {false, true}) {
      SCOPED_TRACE(static_cast<int>(times));
      expect_hopper_matches({.lengths = {50, 9, 64, 3, 1, 30},
                             .heads = 3,
                             .dq = 64,
                             .dv = 64,
                             .position = position,
                             .times = times});
    }
  }
}

// What the others of a pack hold changes nothing, bit for bit.
TEST_F(GpuShortSequences, DoNotSeeTheirNeighbours) {
  const auto run = [](const Lengths& lengths) {
    const AttentionInputs<bf16> in =
        attention_inputs<bf16>({.lengths = lengths, .heads = 2, .dq = 32, .dv = 32});
    return run_attention_on_gpu(in, {.aligned = true});
  };
  // The same tokens, cut elsewhere after the first sequences.
  const AttentionResults a = run({20, 7, 13, 1, 19});
  const AttentionResults b = run({20, 7, 4, 20, 9});
  for (const auto part : {&AttentionResults::out, &AttentionResults::dq, &AttentionResults::dk,
                          &AttentionResults::dv}) {
    for (std::int64_t i = 0; i < 27 * 64; ++i) EXPECT_EQ(element(a.*part, i), element(b.*part, i));
  }
}

// Packs are all that a batch of short sequences has in its plan: nothing for pairs of tokens or for
// sums of dq. Tables add the exact sums of their gradients (exact_sums.cuh), the same for any
// batch: 33 words of 8 bytes for each of 129 buckets in 32 copies, and for each of 8 positions.
TEST_F(GpuShortSequences, TakeLittleMemory) {
  const auto bytes = [](std::int64_t batch, bool tables) {
    return ops::attention_plan_bytes<bf16>(ops::AttentionKind::kHstu, {.device = Device::kCuda,
                                                                       .tokens = 9 * batch / 2,
                                                                       .batch = batch,
                                                                       .max_length = 8,
                                                                       .heads = 4,
                                                                       .query_width = 64,
                                                                       .value_width = 64,
                                                                       .tables = tables,
                                                                       .position_length = 8});
  };
  constexpr std::size_t kTableSums = std::size_t{33} * 8 * (129 * 32 + 8);
  constexpr std::size_t kRounding = 2 * 256;  // of two parts of a plan
  for (const std::int64_t batch : {70000, 140000}) {
    const std::size_t without = bytes(batch, false);
    EXPECT_LT(without, static_cast<std::size_t>(2 * 9 * batch / 2)) << "two bytes a token";
    EXPECT_GE(bytes(batch, true), without + kTableSums);
    EXPECT_LT(bytes(batch, true), without + kTableSums + kRounding);
  }
}

TEST_F(GpuShortSequences, MatchTheReferenceInAThousandRandomBatches) {
  constexpr int kBatches = 1000;
  HopperErrors squares;
  for (std::uint64_t seed = 1; seed <= kBatches; ++seed) {
    PhiloxStream random(seed, 77);
    const auto below = [&](std::int64_t bound) {
      return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(bound)));
    };
    // Mostly short, of a scale of its own in each batch; here and there a long one.
    const std::int64_t scale = 1 + below(64);
    AttentionCase shape = {.lengths = {},
                           .heads = static_cast<int>(1 + below(4)),
                           .dq = 8 * (1 + below(below(8) == 0 ? 32 : 8)),
                           .dv = 8 * (1 + below(below(8) == 0 ? 32 : 8)),
                           .position = below(4) != 0,
                           .time = below(4) != 0,
                           .times = static_cast<Times>(below(6)),
                           .alpha = 0.5 + random.uniform(),
                           .window = below(3) == 0 ? 1 + below(70) : 0,
                           .seed = seed};
    const bool targets = below(3) == 0;
    const std::int64_t sequences = 1 + below(12);
    for (std::int64_t b = 0; b < sequences; ++b) {
      const std::int64_t kind = below(10);
      const std::int64_t length = kind == 0 && b > 0 ? 0
                                  : kind == 1        ? 65 + below(80)
                                                     : 1 + below(scale);
      shape.lengths.push_back(length);
      if (targets) shape.targets.push_back(below(length + 1));
    }
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + ::testing::PrintToString(shape.lengths));
    const HopperErrors errors = hopper_errors(shape, {.aligned = true, .planned = below(2) == 0});
    for (std::size_t i = 0; i < errors.size(); ++i) {
      // The error of one number, as a table's gradient with equal times is, is luck: the bound of
      // one batch is a wide one.
      EXPECT_LE(errors[i].fast, 8 * errors[i].plain + 0x1p-6) << kAttentionParts[i].name;
      squares[i].fast += errors[i].fast * errors[i].fast;
      squares[i].plain += errors[i].plain * errors[i].plain;
    }
    if (HasFailure()) return;
  }
  for (std::size_t i = 0; i < squares.size(); ++i) {
    const double fast = std::sqrt(squares[i].fast / kBatches);
    const double plain = std::sqrt(squares[i].plain / kBatches);
    EXPECT_LE(fast, 1.5 * plain) << kAttentionParts[i].name;
    std::printf("%s: error %.3g, plain %.3g\n", kAttentionParts[i].name, fast, plain);
  }
}

}  // namespace
}  // namespace turbogr::test
