#include "turbogr/ops/dense/swish_norm.h"

#include <gtest/gtest.h>

#include "tests/support/messages.h"
#include "tests/support/simd_levels.h"
#include "tests/support/swish_norm_case.h"

namespace turbogr::ops {
namespace {

using test::matches;
using test::message_of;
using test::NormCase;
using test::NormInputs;
using test::NormResults;

template <class T>
class SwishNormOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(SwishNormOf, Formats);

TYPED_TEST(SwishNormOf, MatchesTheDefinitionAtEveryWidthAndInstructionSet) {
  using T = TypeParam;
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 8}, {3, 1}, {5, 7}, {4, 16}, {3, 50}, {2, 129}, {2200, 20}}) {
    const NormCase c = {.rows = rows, .cols = cols, .kind = NormKind::kLayer, .affine = true};
    const NormInputs<T> in(c);
    const NormResults reference = test::plain_swish_norm<double>(c, in.widened(c));
    const NormResults simple = test::plain_swish_norm<T>(c, in);
    for (const SimdLevel simd : test::simd_levels()) {
      SCOPED_TRACE(::testing::Message() << rows << "x" << cols << " " << name_of(simd));
      Context ctx({.threads = 2, .simd = simd});
      const NormResults fast = test::run_swish_norm<T>(ctx, c, in);
      EXPECT_TRUE(matches(fast.y, simple.y, reference.y));
      EXPECT_TRUE(matches(fast.mean, simple.mean, reference.mean));
      EXPECT_TRUE(matches(fast.rstd, simple.rstd, reference.rstd));
      EXPECT_TRUE(matches(fast.dx, simple.dx, reference.dx));
      EXPECT_TRUE(matches(fast.dweight, simple.dweight, reference.dweight));
      EXPECT_TRUE(matches(fast.dbias, simple.dbias, reference.dbias));
    }
  }
}

TEST(SwishNorm, AnyNumberOfThreadsGivesTheSameBits) {
  const NormCase c = {.rows = 700, .cols = 21, .kind = NormKind::kLayer, .affine = true};
  const NormInputs<float> in(c);
  Context one({.threads = 1});
  const NormResults wanted = test::run_swish_norm<float>(one, c, in);
  for (const int threads : {2, 3}) {
    Context ctx({.threads = threads});
    const NormResults got = test::run_swish_norm<float>(ctx, c, in);
    EXPECT_TRUE(test::same_bits(got.y, wanted.y));
    EXPECT_TRUE(test::same_bits(got.dx, wanted.dx));
    EXPECT_TRUE(test::same_bits(got.dweight, wanted.dweight));
    EXPECT_TRUE(test::same_bits(got.dbias, wanted.dbias));
  }
}

TEST(SwishNorm, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  Tensor x(DType::kF32, {2, 4}), wide(DType::kF32, {2, 5}), two(DType::kF32, {2});
  Tensor three(DType::kF32, {3});
  const NormStatistics<float> saved = {two.view<float, 1>(), two.view<float, 1>()};
  const Rows<float> rows = x.view<float, 2>(), wrong = wide.view<float, 2>();
  EXPECT_EQ(message_of([&] { swish_norm<float>(ctx, rows, {}, wrong, saved); }),
            "swish_norm: y is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(message_of([&] { swish_norm<float>(ctx, rows, {.eps = 0}, rows, saved); }),
            "swish_norm: eps is 0; it must be above 0");
  EXPECT_EQ(message_of([&] {
              swish_norm<float>(ctx, rows, {.weight = three.view<float, 1>()}, rows, saved);
            }),
            "swish_norm: weight has 3 elements; wanted 4");
  const NormStatistics<const float> read = {saved.mean, saved.rstd};
  EXPECT_EQ(
      message_of([&] { swish_norm_backward<float>(ctx, rows, rows, {}, read, {.dx = wrong}); }),
      "swish_norm_backward: dx is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(message_of([&] {
              swish_norm_backward<float>(ctx, rows, rows, {}, read,
                                         {.dx = rows, .dbias = three.view<float, 1>()});
            }),
            "swish_norm_backward: dbias has 3 elements; wanted 4");
}

}  // namespace
}  // namespace turbogr::ops
