#include "turbogr/ops/softmax/sampled_softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/support/block.h"
#include "tests/support/messages.h"
#include "tests/support/simd_levels.h"
#include "tests/support/softmax_case.h"

namespace turbogr::ops {
namespace {

using test::as_close_as_plain;
using test::element;
using test::message_of;
using test::Negatives;
using test::SoftmaxCase;
using test::SoftmaxResult;
using test::SoftmaxShape;

template <class T>
void expect_close(const Context& ctx, const SoftmaxCase<T>& softmax) {
  const SoftmaxResult fast = softmax.run(ctx);
  const auto plain = softmax.template plain<Accum<T>, T>();
  const auto reference = softmax.template plain<double, double>();
  const auto expect = [](const Tensor& value, const Tensor& same_format, const Tensor& exact) {
    if (value.dtype() == DType::kF64) {  // the reference's own format: nothing to measure against
      EXPECT_LT(test::max_error(value, exact), 1e-12 * std::max(1.0, test::max_magnitude(exact)));
    } else {
      EXPECT_TRUE(as_close_as_plain(value, same_format, exact));
    }
  };
  expect(fast.loss, plain.loss, reference.loss);
  expect(fast.log_sum_exp, plain.log_sum_exp, reference.log_sum_exp);
  expect(fast.dquery, plain.dquery, reference.dquery);
  expect(fast.ditems, plain.ditems, reference.ditems);
}

template <class T>
class SoftmaxOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(SoftmaxOf, Formats);

TYPED_TEST(SoftmaxOf, MatchesThePlainLoopsAtEveryWidthAndInstructionSet) {
  for (const SimdLevel simd : test::simd_levels()) {
    const Context ctx({.threads = 2, .simd = simd});
    for (const Negatives kind : {Negatives::kOwn, Negatives::kShared, Negatives::kAll}) {
      for (const std::int64_t width : {1, 7, 16, 50, 129}) {
        SCOPED_TRACE(testing::Message()
                     << name_of(simd) << " kind " << static_cast<int>(kind) << " width " << width);
        // One column normalised is a sign: its gradient is zero and only rounding is left.
        if (width > 1)
          expect_close(
              ctx, SoftmaxCase<TypeParam>(
                       {.tokens = 53, .items = 41, .width = width, .negatives = 19, .kind = kind}));
        expect_close(ctx, SoftmaxCase<TypeParam>({.tokens = 5,
                                                  .items = 9,
                                                  .width = width,
                                                  .negatives = 11,
                                                  .kind = kind,
                                                  .correction = kind != Negatives::kAll},
                                                 {.temperature = 1.0, .normalize = false}));
      }
    }
  }
}

TYPED_TEST(SoftmaxOf, CrossesBlocksOfNegativesAndRoundsOfTokens) {
  const Context ctx({.threads = 2});
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared, Negatives::kAll}) {
    SCOPED_TRACE(static_cast<int>(kind));
    // Few items: one takes thousands of pairs, so its gradient is cut by columns.
    expect_close(ctx, SoftmaxCase<TypeParam>({.tokens = kind == Negatives::kOwn ? 1900 : 2100,
                                              .items = kind == Negatives::kAll ? 300 : 12,
                                              .width = 20,
                                              .negatives = 300,
                                              .kind = kind,
                                              .correction = kind == Negatives::kShared}));
  }
}

TYPED_TEST(SoftmaxOf, SharesNegativesAtEveryFactorAndInstructionSet) {
  for (const SimdLevel simd : test::simd_levels()) {
    const Context ctx({.threads = 2, .simd = simd});
    for (const NegativeSharing sharing : {NegativeSharing::kLogits, NegativeSharing::kEmbeddings}) {
      for (const std::int64_t factor : {1, 2, 4, 60}) {
        SCOPED_TRACE(testing::Message() << name_of(simd) << " reading " << static_cast<int>(sharing)
                                        << " factor " << factor);
        expect_close(
            ctx, SoftmaxCase<TypeParam>(
                     {.tokens = 53, .items = 41, .width = 23, .negatives = 5, .correction = true},
                     {.sharing = sharing, .sharing_factor = factor}));
        expect_close(ctx,
                     SoftmaxCase<TypeParam>({.tokens = 1, .items = 4, .width = 9, .negatives = 3},
                                            {.sharing = sharing, .sharing_factor = factor}));
      }
    }
  }
}

TYPED_TEST(SoftmaxOf, ReadsNegativesFromHalfRowsAtEveryWidthAndInstructionSet) {
  for (const SimdLevel simd : test::simd_levels()) {
    const Context ctx({.threads = 2, .simd = simd});
    for (const Negatives kind : {Negatives::kOwn, Negatives::kShared}) {
      for (const std::int64_t width : {2, 7, 16, 50, 129}) {
        SCOPED_TRACE(testing::Message()
                     << name_of(simd) << " kind " << static_cast<int>(kind) << " width " << width);
        SoftmaxShape shape = {.tokens = 53,
                              .items = 41,
                              .width = width,
                              .negatives = 19,
                              .kind = kind,
                              .correction = true,
                              .half = true};
        expect_close(ctx, SoftmaxCase<TypeParam>(shape));
        expect_close(ctx, SoftmaxCase<TypeParam>(shape, {.temperature = 1.0, .normalize = false}));
        shape.scale = 1e-9;  // shorter than eps: divided by it
        expect_close(ctx, SoftmaxCase<TypeParam>(shape));
      }
    }
    expect_close(ctx, SoftmaxCase<TypeParam>(
                          {.tokens = 20, .items = 41, .width = 20, .negatives = 300, .half = true},
                          {.sharing = NegativeSharing::kLogits, .sharing_factor = 3}));
  }
}

TYPED_TEST(SoftmaxOf, ItemsNeedOnlyHoldThePositivesBesideHalfRows) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared}) {
    SoftmaxCase<T> softmax(
        {.tokens = 30, .items = 25, .width = 9, .negatives = 8, .kind = kind, .half = true});
    for (std::int32_t& positive : softmax.positive) positive %= 6;
    const SoftmaxResult whole = softmax.run(ctx);
    SampledSoftmaxInputs<T> inputs = softmax.inputs();
    inputs.items.rows = 6;
    SoftmaxResult few = softmax.run(ctx);
    std::memcpy(few.ditems.data(), softmax.ditems_start.data(), few.ditems.bytes());
    sampled_softmax<T>(
        ctx, inputs, {},
        {few.loss.template view<Accum<T>, 1>(), few.log_sum_exp.template view<Accum<T>, 1>()});
    sampled_softmax_backward<T>(
        ctx, inputs, {}, std::as_const(few.log_sum_exp).template view<Accum<T>, 1>(),
        softmax.dloss.template view<Accum<T>, 1>(), few.dquery.template view<T, 2>(),
        few.ditems.template view<Accum<T>, 2>());
    EXPECT_EQ(test::max_error(few.loss, whole.loss), 0.0);
    EXPECT_EQ(test::max_error(few.dquery, whole.dquery), 0.0);
    EXPECT_EQ(test::max_error(few.ditems, whole.ditems), 0.0);
  }
}

// More logits than a round holds, so that a round's last partners are made again in the next, and
// the ring closes over its ends.
TYPED_TEST(SoftmaxOf, SharesNegativesAcrossRounds) {
  const Context ctx({.threads = 2});
  for (const NegativeSharing sharing : {NegativeSharing::kLogits, NegativeSharing::kEmbeddings}) {
    SCOPED_TRACE(static_cast<int>(sharing));
    expect_close(
        ctx, SoftmaxCase<TypeParam>({.tokens = 540, .items = 300, .width = 5, .negatives = 1000},
                                    {.sharing = sharing, .sharing_factor = 3}));
  }
}

TYPED_TEST(SoftmaxOf, FactorOneSharesNothing) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  const SoftmaxShape shape = {.tokens = 20, .items = 15, .width = 19, .negatives = 6};
  const SoftmaxResult plain = SoftmaxCase<T>(shape).run(ctx);
  for (const NegativeSharing sharing : {NegativeSharing::kLogits, NegativeSharing::kEmbeddings}) {
    const SoftmaxResult shared =
        SoftmaxCase<T>(shape, {.sharing = sharing, .sharing_factor = 1}).run(ctx);
    EXPECT_EQ(test::max_error(shared.loss, plain.loss), 0.0);
    EXPECT_EQ(test::max_error(shared.dquery, plain.dquery), 0.0);
  }
}

// A partner's negative that is my positive must not count against me, nor, as a logit, one that is
// the partner's own positive.
TYPED_TEST(SoftmaxOf, APartnersNegativesAreMaskedByMyPositiveToo) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  SoftmaxCase<T> softmax({.tokens = 2, .items = 3, .width = 7, .negatives = 2});
  softmax.options.sharing_factor = 2;
  softmax.positive = {0, 1};
  softmax.negatives = {1, 1, 0, 0};  // each token draws the other's positive alone
  const auto losses = [&](NegativeSharing sharing) {
    softmax.options.sharing = sharing;
    expect_close(ctx, softmax);
    return softmax.run(ctx);
  };
  // Own negatives stay; the partner's are all my positive.
  const SoftmaxResult own = losses(NegativeSharing::kNone);
  EXPECT_EQ(test::max_error(losses(NegativeSharing::kLogits).loss, own.loss), 0.0);
  EXPECT_EQ(test::max_error(losses(NegativeSharing::kEmbeddings).loss, own.loss), 0.0);
  softmax.negatives = {0, 0, 1, 1};  // each its own positive: nothing to share as logits
  EXPECT_EQ(test::max_magnitude(losses(NegativeSharing::kLogits).loss), 0.0);
  EXPECT_GT(test::max_magnitude(losses(NegativeSharing::kEmbeddings).loss), 0.0);
}

TYPED_TEST(SoftmaxOf, OneNegativeIsALogisticLoss) {
  using T = TypeParam;
  const Context ctx({.threads = 1});
  SoftmaxCase<T> softmax({.tokens = 1, .items = 2, .width = 5, .negatives = 1});
  softmax.positive = {0};
  softmax.negatives = {1};
  expect_close(ctx, softmax);
}

TYPED_TEST(SoftmaxOf, NegativesEqualToThePositiveCostNothing) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared}) {
    SoftmaxCase<T> softmax({.tokens = 3, .items = 4, .width = 7, .negatives = 5, .kind = kind});
    std::fill(softmax.positive.begin(), softmax.positive.end(), 2);
    std::fill(softmax.negatives.begin(), softmax.negatives.end(), 2);
    const SoftmaxResult result = softmax.run(ctx);
    EXPECT_EQ(test::max_magnitude(result.loss), 0.0);
    EXPECT_EQ(test::max_magnitude(result.dquery), 0.0);
    EXPECT_EQ(test::max_error(result.ditems, softmax.ditems_start), 0.0);
  }
}

TYPED_TEST(SoftmaxOf, StaysFiniteWithHugeLogits) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared, Negatives::kAll}) {
    SCOPED_TRACE(static_cast<int>(kind));
    SoftmaxCase<T> softmax(
        {.tokens = 9, .items = 30, .width = 33, .negatives = 20, .kind = kind, .scale = 100.0},
        {.temperature = 0.05, .normalize = false});
    const SoftmaxResult result = softmax.run(ctx);
    const auto reference = softmax.template plain<double, double>();
    EXPECT_GT(test::max_magnitude(reference.loss), 1e5);
    EXPECT_LT(test::max_error(result.loss, reference.loss),
              1e-5 * test::max_magnitude(reference.loss));
    // One unit in the last place of such a logit is worth a tenth: gradients need only be sane.
    EXPECT_LE(test::max_magnitude(result.dquery), 3 * test::max_magnitude(reference.dquery));
    EXPECT_LT(test::max_error(result.ditems, reference.ditems), INFINITY);
  }
}

TYPED_TEST(SoftmaxOf, ARowShorterThanEpsIsDividedByEps) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared}) {
    SoftmaxCase<T> softmax({.tokens = 4, .items = 6, .width = 7, .negatives = 5, .kind = kind},
                           {.temperature = 0.5, .eps = 0.25});
    for (std::int64_t c = 0; c < 7; ++c) {
      softmax.query.template view<T, 2>()(1, c) = convert<T>(0.01f);
      softmax.items.template view<T, 2>()(3, c) = convert<T>(c == 2 ? 0.125f : 0.0f);
      softmax.items.template view<T, 2>()(4, c) = convert<T>(0.0f);
    }
    softmax.positive = {3, 4, 0, 3};
    expect_close(ctx, softmax);
  }
}

TYPED_TEST(SoftmaxOf, BothPassesAtOnceHaveTheBitsOfOneAfterTheOther) {
  using A = Accum<TypeParam>;
  const Context ctx({.threads = 2});
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared}) {
    const SoftmaxCase<TypeParam> softmax(
        {.tokens = 37, .items = 29, .width = 24, .negatives = 9, .kind = kind});
    const SoftmaxResult apart = softmax.run(ctx);
    Tensor loss = test::poisoned<A>({37}), log_sum_exp = test::poisoned<A>({37}),
           dquery = test::poisoned<TypeParam>({37, 24}),
           ditems = test::converted<A, A>(softmax.ditems_start);
    const auto call = [&](View<A, 1> wanted) {
      sampled_softmax_with_gradients<TypeParam>(
          ctx, softmax.inputs(), softmax.options, softmax.dloss.template view<A, 1>(),
          {wanted, log_sum_exp.template view<A, 1>()}, dquery.template view<TypeParam, 2>(),
          ditems.template view<A, 2>());
    };
    call(loss.template view<A, 1>());
    EXPECT_TRUE(test::same_bits(loss, apart.loss));
    EXPECT_TRUE(test::same_bits(log_sum_exp, apart.log_sum_exp));
    EXPECT_TRUE(test::same_bits(dquery, apart.dquery));
    EXPECT_TRUE(test::same_bits(ditems, apart.ditems));
    EXPECT_EQ(message_of([&] {
                call({loss.template view<A, 1>().data, {36}});
              }),
              "sampled_softmax_with_gradients: loss has 36 elements; wanted 37");
  }
}

TEST(SampledSoftmax, TakesNoTokensAndNoNegatives) {
  const Context ctx({.threads = 2});
  SoftmaxCase<float>({.tokens = 0, .items = 3, .negatives = 2}).run(ctx);
  SoftmaxCase<float>({.tokens = 0, .items = 3, .kind = Negatives::kAll}).run(ctx);
  SoftmaxCase<float> softmax({.tokens = 2, .items = 3, .negatives = 1});
  SampledSoftmaxInputs<float> inputs = softmax.inputs();
  inputs.negatives.shape[1] = 0;
  Tensor loss = test::poisoned<float>({2});
  Tensor saved = test::poisoned<float>({2});
  ctx.workspace().reserve(softmax.workspace_bytes(ctx));
  sampled_softmax<float>(ctx, inputs, {}, {loss.view<float, 1>(), saved.view<float, 1>()});
  EXPECT_EQ(test::max_magnitude(loss), 0.0);
}

TEST(SampledSoftmax, BothAtOnceAreTheTwoCalls) {
  const Context ctx({.threads = 2});
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared}) {
    const SoftmaxCase<float> c(
        {.tokens = 20, .items = 30, .width = 9, .negatives = 11, .kind = kind});
    const test::SoftmaxResult two = c.run(ctx);
    Tensor loss = test::poisoned<float>({20}), saved = test::poisoned<float>({20});
    Tensor dquery = test::poisoned<float>({20, 9});
    Tensor ditems = test::converted<float, float>(c.ditems_start);
    sampled_softmax_with_gradients<float>(ctx, c.inputs(), c.options, c.dloss.view<float, 1>(),
                                          {loss.view<float, 1>(), saved.view<float, 1>()},
                                          dquery.view<float, 2>(), ditems.view<float, 2>());
    EXPECT_EQ(test::max_error(loss, two.loss), 0.0);
    EXPECT_EQ(test::max_error(saved, two.log_sum_exp), 0.0);
    EXPECT_EQ(test::max_error(dquery, two.dquery), 0.0);
    EXPECT_EQ(test::max_error(ditems, two.ditems), 0.0);
    EXPECT_EQ(message_of([&] {
                sampled_softmax_with_gradients<float>(
                    ctx, c.inputs(), c.options, c.dloss.view<float, 1>(),
                    {loss.view<float, 1>(), saved.view<float, 1>()}, dquery.view<float, 2>(), {});
              }),
              "sampled_softmax_with_gradients: ditems is [0, 0]; wanted [30, 9]");
  }
}

// A short last step has fewer tokens than share, so fewer products each and more in a round.
TEST(SampledSoftmax, ScratchOfManyTokensServesFewer) {
  const Context ctx({.threads = 2});
  for (const NegativeSharing sharing : {NegativeSharing::kLogits, NegativeSharing::kEmbeddings}) {
    const SoftmaxOptions options = {.sharing = sharing, .sharing_factor = 400};
    const Context planned(
        {.threads = 2, .workspace_bytes = softmax_workspace_bytes(ctx, 512, 30, 8, 16, options)});
    for (const std::int64_t tokens : {1, 75, 200, 299, 399, 400, 470}) {
      const SoftmaxCase<float> c({.tokens = tokens, .items = 30, .width = 8, .negatives = 16},
                                 options);
      Tensor loss = test::poisoned<float>({tokens}), saved = test::poisoned<float>({tokens});
      Tensor dquery = test::poisoned<float>({tokens, 8});
      Tensor ditems = test::converted<float, float>(c.ditems_start);
      EXPECT_NO_THROW(sampled_softmax_with_gradients<float>(
          planned, c.inputs(), c.options, c.dloss.view<float, 1>(),
          {loss.view<float, 1>(), saved.view<float, 1>()}, dquery.view<float, 2>(),
          ditems.view<float, 2>()))
          << tokens;
    }
  }
}

TEST(SampledSoftmax, ScratchStaysFarBelowOneRowANegative) {
  const Context ctx({.threads = 2});
  const std::int64_t tokens = 32768, negatives = 128, width = 256;
  const auto rows = static_cast<std::size_t>(tokens * negatives * width) * sizeof(float);
  EXPECT_LT(softmax_workspace_bytes(ctx, tokens, 1 << 20, width, negatives), rows / 100);
  EXPECT_LT(softmax_workspace_bytes(ctx, tokens, 1 << 20, width, 0), rows / 100);
  // Shared: nothing of size tokens x candidates either.
  EXPECT_LT(softmax_workspace_bytes(ctx, tokens, 1 << 16, width, 0),
            static_cast<std::size_t>(tokens) * (1 << 16) * sizeof(float) / 100);
  // What is promised is enough, and a run does not take much less.
  const SoftmaxCase<float> softmax({.tokens = 64, .items = 40, .width = 32, .negatives = 10});
  const Context exact({.threads = 2, .workspace_bytes = softmax.workspace_bytes(ctx)});
  softmax.run(exact);
  EXPECT_GT(exact.workspace().peak() * 2, softmax.workspace_bytes(ctx));
}

TEST(SampledSoftmax, SaysWhatIsWrong) {
  const Context ctx({.threads = 2, .workspace_bytes = 1 << 20});
  const SoftmaxCase<float> good({.tokens = 2, .items = 5, .width = 4, .negatives = 3});
  Tensor loss(DType::kF32, {2});
  Tensor saved(DType::kF32, {2});
  const auto call = [&](const SampledSoftmaxInputs<float>& inputs, const SoftmaxOptions& options) {
    return message_of([&] {
      sampled_softmax<float>(ctx, inputs, options, {loss.view<float, 1>(), saved.view<float, 1>()});
    });
  };
  EXPECT_EQ(call(good.inputs(), {.temperature = 0}),
            "sampled_softmax: temperature is 0; it must be above 0");
  EXPECT_EQ(call(good.inputs(), {.eps = 0}),
            "sampled_softmax: eps is 0; normalising needs one above 0");
  SampledSoftmaxInputs<float> inputs = good.inputs();
  inputs.shared_negatives = {good.negatives.data(), {3}};
  EXPECT_EQ(call(inputs, {}),
            "sampled_softmax: both of negatives and shared_negatives given; give one of them");
  inputs.shared_negatives = {};
  inputs.negatives = {};
  EXPECT_EQ(call(inputs, {}),
            "sampled_softmax: neither of negatives and shared_negatives given; give one of them");
  inputs.negatives = {good.negatives.data(), {1, 3}};
  EXPECT_EQ(call(inputs, {}),
            "sampled_softmax: negatives of 1 tokens for 2; give each its own, or shared ones");
  const std::vector<std::int32_t> bad = {0, 4, 5, 1, -1, 2};
  inputs.negatives = {bad.data(), {2, 3}};
  EXPECT_EQ(call(inputs, {}),
            "sampled_softmax: negative row 5 at position 2 for 5 rows of items; it must be at "
            "least 0 and below that");
  inputs = good.inputs();
  inputs.negatives = {};
  inputs.shared_negatives = {bad.data() + 3, {3}};
  EXPECT_NE(call(inputs, {}).find("negative row -1 at position 1"), std::string::npos);
  inputs = good.inputs();
  inputs.positive = {bad.data() + 2, {2}};
  EXPECT_NE(call(inputs, {}).find("positive row 5 at position 0 for 5 rows"), std::string::npos);
  inputs = good.inputs();
  inputs.correction = {loss.view<float, 1>().data, {2}};
  EXPECT_EQ(call(inputs, {}), "sampled_softmax: correction has 2 elements; wanted 5");
  inputs = good.inputs();
  inputs.items.rows = std::int64_t{1} << 31;
  EXPECT_EQ(
      call(inputs, {}),
      "sampled_softmax: 2 tokens and 2147483648 items; at most 2^31 - 1 of each fit one call");
  const std::vector<std::int32_t> twice = {1, 1};
  inputs = good.inputs();
  inputs.order = {twice.data(), {2}};
  const SoftmaxOptions sharing = {.sharing = NegativeSharing::kLogits, .sharing_factor = 2};
  EXPECT_EQ(call(inputs, sharing),
            "sampled_softmax: order names token 1 at place 1; it must name each of 2 tokens once");
  EXPECT_EQ(call(good.inputs(), sharing), "sampled_softmax: order has 0 elements; wanted 2");
  EXPECT_EQ(call(good.inputs(), {.sharing_factor = 0}),
            "sampled_softmax: a sharing factor of 0; it must be 1 or more");
  inputs.negatives = {};
  inputs.shared_negatives = {good.negatives.data(), {3}};
  EXPECT_EQ(call(inputs, sharing),
            "sampled_softmax: tokens with one set of negatives have nothing to share; give each "
            "its own, or set sharing to kNone");
  const SoftmaxCase<float> half(
      {.tokens = 2, .items = 5, .width = 4, .negatives = 3, .half = true});
  inputs = half.inputs();
  inputs.negative_items.scale.shape[0] = 4;
  EXPECT_EQ(call(inputs, {}), "sampled_softmax: scale of negative_items has 4 elements; wanted 5");
  inputs = half.inputs();
  inputs.negative_items.values.cols = 3;
  EXPECT_EQ(call(inputs, {}), "sampled_softmax: negative_items is [5, 3]; wanted [5, 4]");
  inputs = half.inputs();
  inputs.negative_items.values.rows = 4;
  inputs.negative_items.scale.shape[0] = 4;
  EXPECT_EQ(call(inputs, {}),
            "sampled_softmax: 5 items and 4 negative_items; the same rows stand first in both, so "
            "items has no more");
  const SoftmaxCase<float> wide({.tokens = 2, .items = 5, .width = 6});
  inputs = good.inputs();
  inputs.items = wide.inputs().items;
  EXPECT_EQ(call(inputs, {}), "sampled_softmax: items is [5, 6]; wanted [5, 4]");
  Tensor dquery(DType::kF32, {2, 4});
  Tensor ditems(DType::kF32, {4, 4});
  EXPECT_EQ(message_of([&] {
              sampled_softmax_backward<float>(
                  ctx, good.inputs(), {}, std::as_const(saved).view<float, 1>(),
                  good.dloss.view<float, 1>(), dquery.view<float, 2>(), ditems.view<float, 2>());
            }),
            "sampled_softmax_backward: ditems is [4, 4]; wanted [5, 4]");
}

}  // namespace
}  // namespace turbogr::ops
