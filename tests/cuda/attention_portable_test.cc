#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cuda_attention.h"

namespace turbogr::test {
namespace {

template <class T, bool kFuxi>
struct Kind {
  using Format = T;
  static constexpr bool fuxi = kFuxi;
};

// Slices that begin at odd columns: none of these may go to the Hopper kernels.
template <class K>
class GpuPortableAttention : public ::testing::Test {
 protected:
  void SetUp() override { TGR_SKIP_WITHOUT_GPU(); }

  // Several draws are joined: where a result is one long sum, a single plain error is luck.
  static void check(AttentionCase shape, int draws = 1) {
    using T = typename K::Format;
    shape.fuxi = K::fuxi;
    double fast_error[std::size(kAttentionParts)] = {};
    double plain_error[std::size(kAttentionParts)] = {};
    double magnitude[std::size(kAttentionParts)] = {};
    for (int draw = 0; draw < draws; ++draw, shape.seed += 10) {
      const AttentionInputs<T> in = attention_inputs<T>(shape);
      const AttentionResults fast = run_attention_on_gpu(in);
      const AttentionResults plain = run_attention_reference(in);
      const AttentionResults exact = run_attention_reference(converted_inputs<double>(in));
      for (std::size_t i = 0; i < std::size(kAttentionParts); ++i) {
        const auto part = kAttentionParts[i].tensor;
        fast_error[i] = std::max(fast_error[i], max_error(fast.*part, exact.*part));
        plain_error[i] = std::max(plain_error[i], max_error(plain.*part, exact.*part));
        magnitude[i] = std::max(magnitude[i], max_magnitude(exact.*part));
      }
    }
    for (std::size_t i = 0; i < std::size(kAttentionParts); ++i) {
      const bool table = i >= 4;
      const double unit = std::is_same_v<T, double>           ? 0x1p-52
                          : std::is_same_v<T, float> || table ? 0x1p-23
                                                              : 0x1p-8;
      // The plain code in f64 is the reference itself: its error is zero.
      const double floor = (std::is_same_v<T, double> ? 64 : 4) * unit * magnitude[i];
      EXPECT_LE(fast_error[i], 2 * plain_error[i] + floor) << kAttentionParts[i].name;
    }
  }
};
using Kinds = ::testing::Types<Kind<double, false>, Kind<float, false>, Kind<bf16, false>,
                               Kind<double, true>, Kind<float, true>, Kind<bf16, true>>;
TYPED_TEST_SUITE(GpuPortableAttention, Kinds);

TYPED_TEST(GpuPortableAttention, MatchesTheReferenceAtEveryLength) {
  for (const std::int64_t length : {1, 2, 31, 32, 33, 63, 64, 65, 200}) {
    SCOPED_TRACE(length);
    this->check({.lengths = {length}, .heads = 1, .dq = 16, .dv = 16});
  }
  this->check({.lengths = {70, 0, 1, 130, 64, 0}, .heads = 2, .dq = 20, .dv = 12});
}

TYPED_TEST(GpuPortableAttention, MatchesTheReferenceAtEveryHeadWidth) {
  const std::pair<std::int64_t, std::int64_t> widths[] = {{1, 1},   {25, 25}, {50, 50}, {65, 64},
                                                          {64, 65}, {256, 3}, {2, 256}, {127, 48}};
  for (const auto& [dq, dv] : widths) {
    SCOPED_TRACE(std::to_string(dq) + " " + std::to_string(dv));
    this->check({.lengths = {37, 66}, .heads = 3, .dq = dq, .dv = dv});
  }
}

TYPED_TEST(GpuPortableAttention, UsesTheTablesItIsGiven) {
  for (const bool position : {false, true}) {
    for (const bool time : {false, true}) {
      SCOPED_TRACE(std::to_string(position) + std::to_string(time));
      this->check({.lengths = {90, 20}, .heads = 2, .position = position, .time = time});
    }
  }
  this->check({.lengths = {70, 20}, .time = false, .max_length = 300});
}

TYPED_TEST(GpuPortableAttention, TakesTimesOfAnyOrderAndSize) {
  for (const Times times : {Times::kSorted, Times::kEqual, Times::kBackwards, Times::kShuffled,
                            Times::kMilliseconds, Times::kHuge}) {
    SCOPED_TRACE(static_cast<int>(times));
    this->check({.lengths = {150, 9}, .position = false, .times = times}, 4);
  }
}

TYPED_TEST(GpuPortableAttention, FollowsEveryMaskOptionAloneAndTogether) {
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
        this->check(shape, 2);
      }
    }
  }
}

TYPED_TEST(GpuPortableAttention, ScalesTheScoreAndStaysFinite) {
  for (const double alpha : {0.125, -2.0, 0.0}) {
    this->check({.lengths = {70}, .heads = 2, .alpha = alpha, .norm_length = 0.5}, 4);
  }
  this->check({.lengths = {70}, .heads = 1, .dq = 8, .alpha = 300.0}, 4);
}

TYPED_TEST(GpuPortableAttention, LeavesNothingToDoOnAnEmptyBatch) {
  this->check({.lengths = {}});
  this->check({.lengths = {0, 0}});
}

TYPED_TEST(GpuPortableAttention, GivesTheSameBitsEveryTime) {
  AttentionCase shape = {.fuxi = TypeParam::fuxi, .lengths = {300, 7, 129}, .heads = 3};
  shape.prefix = {5, 0, 3};
  const auto in = attention_inputs<typename TypeParam::Format>(shape);
  const AttentionResults first = run_attention_on_gpu(in);
  for (int i = 0; i < 3; ++i) expect_same_bits(first, run_attention_on_gpu(in));
}

}  // namespace
}  // namespace turbogr::test
