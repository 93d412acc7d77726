#include "turbogr/ops/rows/combine_input.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/block.h"
#include "tests/support/combine_input_case.h"
#include "tests/support/messages.h"
#include "tests/support/simd_levels.h"

namespace turbogr::ops {
namespace {

using test::CombineCase;
using test::CombineInputs;
using test::CombineResults;
using test::matches;
using test::message_of;

template <class T>
class CombineInputOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(CombineInputOf, Formats);

TYPED_TEST(CombineInputOf, MatchesTheDefinitionAtEveryShapeAndInstructionSet) {
  using T = TypeParam;
  const DropoutOptions dropout = {.rate = 0.25, .seed = 6, .site = 3};
  std::vector<CombineCase> cases = {
      {{}, 8, 4, true, dropout},
      {{0, 0}, 8, 4, true, dropout},
      {{1}, 1, 1, false, {}},
      {{0, 3, 0, 12, 1, 0}, 50, 12, true, dropout},
      {{70, 2, 9}, 129, 80, false, dropout},
      {{5, 5, 5}, 300, 5, true, {}},
  };
  for (const CombineCase& c : cases) {
    const CombineInputs<T> in(c);
    const CombineResults reference = test::plain_combine<double>(c, in.widened(c));
    const CombineResults simple = test::plain_combine<T>(c, in);
    for (const SimdLevel simd : test::simd_levels()) {
      SCOPED_TRACE(::testing::Message() << c.cols << " columns " << name_of(simd));
      const Context ctx({.threads = 2, .simd = simd});
      const CombineResults fast = test::run_combine<T>(ctx, c, in);
      EXPECT_TRUE(matches(fast.x, simple.x, reference.x));
      EXPECT_TRUE(matches(fast.de, simple.de, reference.de));
      EXPECT_TRUE(matches(fast.dp, simple.dp, reference.dp));
      EXPECT_TRUE(matches(fast.dextra, simple.dextra, reference.dextra));
    }
  }
}

TEST(CombineInput, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  Tensor e(DType::kF32, {3, 4}), p(DType::kF32, {2, 4}), bad(DType::kF32, {3, 5});
  std::vector<std::int64_t> offsets = {0, 3}, down = {0, 2, 1}, two = {0, 1, 3};
  const Rows<float> rows = e.view<float, 2>(), wrong = bad.view<float, 2>();
  const auto call = [&](const std::vector<std::int64_t>& o, View<float, 2> table,
                        const CombineInputOptions<float>& options, Rows<float> x) {
    return message_of([&] {
      combine_input<float>(ctx, {rows, test::view_of(o)}, table, options, x);
    });
  };
  EXPECT_EQ(call(two, p.view<float, 2>(), {}, rows), "");
  EXPECT_EQ(call(offsets, p.view<float, 2>(), {}, rows),
            "combine_input: sequence 0 has 3 rows and p has 2 positions; cut the sequence or use a "
            "longer table");
  EXPECT_NE(call(down, p.view<float, 2>(), {}, rows).find("offsets go down"), std::string::npos);
  EXPECT_EQ(call(two, bad.view<float, 2>(), {}, rows), "combine_input: p is [3, 5]; wanted [3, 4]");
  EXPECT_EQ(call(two, p.view<float, 2>(), {}, wrong), "combine_input: x is [3, 5]; wanted [3, 4]");
  EXPECT_EQ(call(two, p.view<float, 2>(), {.extra = wrong}, rows),
            "combine_input: extra is [3, 5]; wanted [3, 4]");
  EXPECT_EQ(call(two, p.view<float, 2>(), {.dropout = {.rate = -1}}, rows),
            "combine_input: dropout rate is -1; it must be at least 0 and below 1");
  const auto back = [&](const std::vector<std::int64_t>& o,
                        const CombineInputGradients<float>& gradients) {
    return message_of([&] {
      combine_input_backward<float>(ctx, {rows, test::view_of(o)}, {}, gradients);
    });
  };
  EXPECT_EQ(back(two, {.de = wrong}), "combine_input_backward: de is [3, 5]; wanted [3, 4]");
  EXPECT_EQ(back(two, {.de = rows, .dp = bad.view<float, 2>()}),
            "combine_input_backward: dp is [3, 5]; wanted [3, 4]");
  EXPECT_NE(back(offsets, {.de = rows, .dp = p.view<float, 2>()}).find("dp has 2 positions"),
            std::string::npos);
  EXPECT_EQ(back(two, {.de = rows, .dextra = wrong}),
            "combine_input_backward: dextra is [3, 5]; wanted [3, 4]");
}

}  // namespace
}  // namespace turbogr::ops
