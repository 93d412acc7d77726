#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/attention_case.h"
#include "tests/support/simd_levels.h"

namespace turbogr::test {
namespace {

// Both operators, both fast formats: what holds for one must hold for all.
template <class T, bool kFuxi>
struct Kind {
  using Format = T;
  static constexpr bool fuxi = kFuxi;
};

template <class K>
class AttentionOf : public ::testing::Test {
 protected:
  static void check(AttentionCase shape, const std::vector<SimdLevel>& levels = {best_simd_level()},
                    int draws = 1) {
    shape.fuxi = K::fuxi;
    expect_as_good_as_plain<typename K::Format>(shape, levels, draws);
  }
};
using Kinds =
    ::testing::Types<Kind<float, false>, Kind<bf16, false>, Kind<float, true>, Kind<bf16, true>>;
TYPED_TEST_SUITE(AttentionOf, Kinds);

TYPED_TEST(AttentionOf, MatchesTheReferenceOnEveryInstructionSet) {
  this->check({.lengths = {70, 0, 1, 130}, .heads = 2, .dq = 20, .dv = 12}, simd_levels());
  this->check({.lengths = {65, 3},
               .heads = 1,
               .dq = 33,
               .dv = 50,
               .window = 20,
               .prefix = {3, 1},
               .targets = {5, 1}},
              simd_levels());
}

TYPED_TEST(AttentionOf, MatchesTheReferenceAtEveryLength) {
  for (const std::int64_t length : {1, 2, 15, 16, 17, 63, 64, 65, 200}) {
    SCOPED_TRACE(length);
    this->check({.lengths = {length}, .heads = 1, .dq = 16, .dv = 16});
  }
}

TYPED_TEST(AttentionOf, MatchesTheReferenceAtEveryHeadWidth) {
  const std::pair<std::int64_t, std::int64_t> widths[] = {{1, 1},   {25, 25}, {50, 50}, {65, 64},
                                                          {64, 65}, {256, 3}, {2, 256}, {127, 48}};
  for (const auto& [dq, dv] : widths) {
    SCOPED_TRACE(std::to_string(dq) + " " + std::to_string(dv));
    this->check({.lengths = {37, 66}, .heads = 2, .dq = dq, .dv = dv});
  }
}

// Backward takes some heads of a sequence at a time.
TYPED_TEST(AttentionOf, MatchesTheReferenceWithManyHeads) {
  for (const int heads : {4, 5, 9}) {
    SCOPED_TRACE(heads);
    this->check({.lengths = {20, 0, 70}, .heads = heads, .dq = 8, .dv = 6});
  }
}

TYPED_TEST(AttentionOf, UsesTheTablesItIsGiven) {
  for (const bool position : {false, true}) {
    for (const bool time : {false, true}) {
      SCOPED_TRACE(std::to_string(position) + std::to_string(time));
      this->check({.lengths = {90, 20}, .heads = 2, .position = position, .time = time});
    }
  }
  // A table for longer sequences than the batch has.
  this->check({.lengths = {70, 20}, .time = false, .max_length = 300});
}

TYPED_TEST(AttentionOf, TakesTimesOfAnyOrderAndSize) {
  for (const Times times : {Times::kSorted, Times::kEqual, Times::kBackwards, Times::kShuffled,
                            Times::kMilliseconds, Times::kHuge}) {
    SCOPED_TRACE(static_cast<int>(times));
    this->check({.lengths = {150, 9}, .position = false, .times = times}, simd_levels(), 8);
  }
}

TYPED_TEST(AttentionOf, FollowsEveryMaskOptionAloneAndTogether) {
  const std::vector<std::int64_t> lengths = {150, 64, 5, 0, 1, 80};
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t window : {std::int64_t{0}, std::int64_t{1}, std::int64_t{70}, kLargest}) {
    for (const bool prefix : {false, true}) {
      for (const bool targets : {false, true}) {
        SCOPED_TRACE(std::to_string(window) + " " + std::to_string(prefix) +
                     std::to_string(targets));
        AttentionCase shape = {.lengths = lengths, .heads = 1, .window = window};
        if (prefix) shape.prefix = {70, 3, 5, 0, 0, 10};
        if (targets) shape.targets = {10, 61, 0, 0, 1, 66};
        this->check(shape);
      }
    }
  }
}

// Among them targets that begin before, in and behind a tile of 64, and nothing but targets.
TYPED_TEST(AttentionOf, TargetsMayStandAtOnePlace) {
  this->check({.lengths = {150, 64, 5, 0, 1, 80, 200, 3},
               .heads = 2,
               .targets = {10, 61, 0, 0, 1, 66, 136, 3},
               .together = true},
              simd_levels());
  this->check({.lengths = {150, 9},
               .heads = 1,
               .window = 20,
               .prefix = {70, 2},
               .targets = {40, 4},
               .together = true,
               .max_length = 111});  // places, fewer than tokens
}

// Then a target attends to the same whether others are before it or not.
TEST(Attention, TargetsAtOnePlaceDoNotCountEachOther) {
  for (const bool fuxi : {false, true}) {
    AttentionCase many = {
        .fuxi = fuxi, .lengths = {8}, .dq = 3, .dv = 2, .time = false, .targets = {3}};
    many.together = true;
    AttentionInputs<double> in = attention_inputs<double>(many);
    const AttentionResults together = run_attention_op(in);
    // The last target alone: the rows of the first two are taken out.
    AttentionInputs<double> one = attention_inputs<double>(many);
    one.shape.lengths = {6};
    one.shape.targets = {1};
    one.offsets = {0, 6};
    one.projection = Tensor(DType::kF64, {6, in.width()});
    one.dout = Tensor(DType::kF64, {6, in.out_width()});
    for (std::int64_t r = 0; r < 6; ++r) {
      for (std::int64_t c = 0; c < in.width(); ++c) {
        one.projection.view<double, 2>()(r, c) = in.projection.view<double, 2>()(r < 5 ? r : 7, c);
      }
    }
    const AttentionResults alone = run_attention_op(one);
    for (std::int64_t c = 0; c < in.out_width(); ++c) {
      EXPECT_EQ(element(alone.out, 5 * in.out_width() + c),
                element(together.out, 7 * in.out_width() + c));
    }
    in.shape.together = false;
    const AttentionResults apart = run_attention_op(in);
    EXPECT_NE(element(apart.out, 7 * in.out_width()), element(together.out, 7 * in.out_width()));
  }
}

TYPED_TEST(AttentionOf, ScalesTheScore) {
  for (const double alpha : {0.125, -2.0, 0.0}) {
    this->check({.lengths = {70}, .heads = 2, .alpha = alpha, .norm_length = 0.5});
  }
}

TYPED_TEST(AttentionOf, StaysFiniteAtExtremeScores) {
  // Scores of some thousands either way: SiLU is 0 or the score itself.
  this->check({.lengths = {70}, .heads = 1, .dq = 8, .alpha = 300.0}, simd_levels());
}

TYPED_TEST(AttentionOf, LeavesNothingToDoOnAnEmptyBatch) {
  this->check({.lengths = {}});
  this->check({.lengths = {0, 0}});
}

}  // namespace
}  // namespace turbogr::test
