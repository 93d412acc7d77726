// Sampled and full softmax on both devices, against double.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/support/on_device.h"
#include "tests/support/softmax_case.h"

namespace turbogr::ops {
namespace {

using test::Negatives;
using test::Placed;
using test::SoftmaxCase;
using test::SoftmaxResult;
using test::SoftmaxShape;

// `at_once`: losses and gradients from one call.
template <class T>
SoftmaxResult run(const Context& ctx, const SoftmaxCase<T>& c, test::Margins margins,
                  bool at_once = false) {
  using A = Accum<T>;
  ctx.workspace().reserve(c.workspace_bytes(ctx));
  const Placed<T> query(ctx, c.query, margins), items(ctx, c.items, margins);
  const Tensor correction = test::place(ctx, c.correction), dloss = test::place(ctx, c.dloss);
  const Tensor positive = test::place(ctx, test::tensor_of(c.positive));
  const Tensor negatives = test::place(ctx, test::tensor_of(c.negatives));
  Tensor loss = test::place(ctx, test::poisoned<A>({c.shape.tokens}));
  Tensor log_sum_exp = test::place(ctx, test::poisoned<A>({c.shape.tokens}));
  Placed<T> dquery(ctx, c.shape.tokens, c.shape.width, margins);
  Placed<A> ditems(ctx, c.ditems_start, margins);
  SampledSoftmaxInputs<T> in = {
      .query = query.rows(), .items = items.rows(), .positive = positive.view<std::int32_t, 1>()};
  const std::int32_t* places = negatives.view<std::int32_t, 1>().data;
  if (c.shape.kind == Negatives::kOwn) {
    in.negatives = {places, {c.shape.tokens, c.shape.negatives}};
  } else {
    in.shared_negatives = {places, {c.shape.negatives}};
  }
  if (c.shape.correction) in.correction = correction.view<A, 1>();
  const Tensor order = test::place(ctx, test::tensor_of(c.order));
  if (c.options.sharing != NegativeSharing::kNone) in.order = order.view<std::int32_t, 1>();
  Tensor half_items, half_scale;
  if (c.shape.half) {
    half_items = test::place(ctx, c.half_items);
    half_scale = test::place(ctx, c.half_scale);
    in.negative_items = {std::as_const(half_items).view<f16, 2>(),
                         std::as_const(half_scale).view<float, 1>()};
  }
  const SoftmaxOutput<T> output = {loss.view<A, 1>(), log_sum_exp.view<A, 1>()};
  if (at_once) {
    sampled_softmax_with_gradients<T>(ctx, in, c.options, dloss.view<A, 1>(), output, dquery.rows(),
                                      ditems.rows());
  } else if (c.shape.kind == Negatives::kAll) {
    full_softmax<T>(ctx, in.query, in.items, in.positive, c.options, output);
    full_softmax_backward<T>(ctx, in.query, in.items, in.positive, c.options, output.log_sum_exp,
                             dloss.view<A, 1>(), dquery.rows(), ditems.rows());
  } else if (at_once) {
    sampled_softmax_with_gradients<T>(ctx, in, c.options, dloss.view<A, 1>(), output, dquery.rows(),
                                      ditems.rows());
  } else {
    sampled_softmax<T>(ctx, in, c.options, output);
    sampled_softmax_backward<T>(ctx, in, c.options, output.log_sum_exp, dloss.view<A, 1>(),
                                dquery.rows(), ditems.rows());
  }
  EXPECT_EQ(ctx.workspace().used(), 0u);
  return {to_host(ctx, loss), to_host(ctx, log_sum_exp), dquery.fetch(ctx), ditems.fetch(ctx)};
}

template <class T>
void expect_close(const SoftmaxCase<T>& c, bool at_once = false) {
  const SoftmaxResult plain = c.template plain<Accum<T>, T>();
  const SoftmaxResult exact = c.template plain<double, double>();
  const test::Margins margins = c.shape.width % 8 == 0 ? test::kAligned : test::kCrooked;
  for (const Device device : test::devices()) {
    SCOPED_TRACE(::testing::Message()
                 << name_of(device) << " kind " << static_cast<int>(c.shape.kind) << " "
                 << c.shape.tokens << " tokens, " << c.shape.items << " items, width "
                 << c.shape.width << ", " << c.shape.negatives << " negatives"
                 << (at_once ? ", at once" : ""));
    const Context ctx({.device = device, .threads = 1});
    const SoftmaxResult fast = run(ctx, c, margins, at_once);
    // A GPU's matrix units add bf16 products up with fewer bits than a chain of f32 does.
    const bool matrix_units =
        std::is_same_v<T, bf16> && c.shape.kind != Negatives::kOwn && device == Device::kCuda;
    const auto expect = [&](const Tensor& value, const Tensor& same, const Tensor& reference) {
      if (matrix_units && value.dtype() == DType::kF32) {
        EXPECT_LT(test::max_error(value, reference), 0x1p-18 * test::max_magnitude(reference));
      } else if (value.dtype() == DType::kF64) {
        EXPECT_LT(test::max_error(value, reference),
                  1e-11 * std::max(1.0, test::max_magnitude(reference)));
      } else {
        EXPECT_TRUE(test::as_close_as_plain(value, same, reference));
      }
    };
    expect(fast.loss, plain.loss, exact.loss);
    expect(fast.log_sum_exp, plain.log_sum_exp, exact.log_sum_exp);
    expect(fast.dquery, plain.dquery, exact.dquery);
    if (matrix_units) {
      // The tile of gradients is rounded to bf16 for its products: each term of a row's sum may be
      // off by 2^-9 of itself.
      Tensor change = test::converted<double, double>(exact.ditems);
      for (std::int64_t i = 0; i < change.size(); ++i) {
        change.view<double, 2>().data[i] -= test::element(c.ditems_start, i);
      }
      EXPECT_LT(test::max_error(fast.ditems, exact.ditems), 0x1p-8 * test::max_magnitude(change));
    } else {
      expect(fast.ditems, plain.ditems, exact.ditems);
    }
  }
  if (!at_once && c.shape.kind != Negatives::kAll) expect_close(c, true);
}

template <class T>
class CudaSoftmax : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(CudaSoftmax, Formats);

TYPED_TEST(CudaSoftmax, MatchesThePlainLoops) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared, Negatives::kAll}) {
    for (const std::int64_t width : {7, 50, 64, 264, 1024}) {
      expect_close(SoftmaxCase<T>(
          {.tokens = 53, .items = 41, .width = width, .negatives = 19, .kind = kind}));
      expect_close(SoftmaxCase<T>({.tokens = 5,
                                   .items = 9,
                                   .width = width,
                                   .negatives = 70,
                                   .kind = kind,
                                   .correction = kind != Negatives::kAll},
                                  {.temperature = 1.0, .normalize = false}));
    }
  }
}

TYPED_TEST(CudaSoftmax, CrossesTilesAndLongSums) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared, Negatives::kAll}) {
    // Few items: one takes thousands of terms.
    expect_close(SoftmaxCase<T>({.tokens = 2100,
                                 .items = kind == Negatives::kAll ? 300 : 12,
                                 .width = 24,
                                 .negatives = 100,
                                 .kind = kind,
                                 .correction = kind == Negatives::kShared}));
  }
  // More tokens than a tile holds: 2048 in f64, 16384 in f32, as in bf16.
  if constexpr (std::is_same_v<T, float>) {
    for (const bool at_once : {false, true}) {
      expect_close(SoftmaxCase<T>({.tokens = 16500,
                                   .items = 300,
                                   .width = 8,
                                   .negatives = 40,
                                   .kind = Negatives::kShared}),
                   at_once);
    }
  }
  // More candidates than a set holds.
  expect_close(SoftmaxCase<T>(
      {.tokens = 3, .items = 9100, .width = 16, .negatives = 9000, .kind = Negatives::kShared}));
}

TYPED_TEST(CudaSoftmax, SharesNegativesByLogitsAndByEmbeddings) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  for (const NegativeSharing sharing : {NegativeSharing::kLogits, NegativeSharing::kEmbeddings}) {
    for (const std::int64_t factor : {1, 2, 4, 60}) {
      for (const std::int64_t width : {23, 64, 264}) {
        SCOPED_TRACE(::testing::Message()
                     << "reading " << static_cast<int>(sharing) << " factor " << factor);
        expect_close(SoftmaxCase<T>(
            {.tokens = 53, .items = 41, .width = width, .negatives = 35, .correction = true},
            {.sharing = sharing, .sharing_factor = factor}));
      }
    }
    // More logits, and more pairs, than a round holds.
    expect_close(SoftmaxCase<T>({.tokens = sharing == NegativeSharing::kLogits ? 2500 : 1300,
                                 .items = 3000,
                                 .width = 8,
                                 .negatives = 7000},
                                {.sharing = sharing, .sharing_factor = 2}));
  }
}

TYPED_TEST(CudaSoftmax, ReadsNegativesFromHalfRows) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared}) {
    for (const std::int64_t width : {7, 50, 64, 264, 1024}) {
      expect_close(SoftmaxCase<T>({.tokens = 53,
                                   .items = 41,
                                   .width = width,
                                   .negatives = 35,
                                   .kind = kind,
                                   .correction = true,
                                   .scale = 3.0,
                                   .half = true}));
      expect_close(SoftmaxCase<T>(
          {.tokens = 9, .items = 12, .width = width, .negatives = 40, .kind = kind, .half = true},
          {.temperature = 1.0, .normalize = false}));
    }
  }
  for (const NegativeSharing sharing : {NegativeSharing::kLogits, NegativeSharing::kEmbeddings}) {
    expect_close(
        SoftmaxCase<T>({.tokens = 53, .items = 41, .width = 64, .negatives = 35, .half = true},
                       {.sharing = sharing, .sharing_factor = 3}));
  }
}

TYPED_TEST(CudaSoftmax, NegativesEqualToThePositiveCostNothing) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  const Context ctx({.device = Device::kCuda});
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared}) {
    SoftmaxCase<T> c({.tokens = 3, .items = 4, .width = 8, .negatives = 5, .kind = kind});
    std::fill(c.positive.begin(), c.positive.end(), 2);
    std::fill(c.negatives.begin(), c.negatives.end(), 2);
    const SoftmaxResult result = run(ctx, c, test::kAligned);
    EXPECT_EQ(test::max_magnitude(result.loss), 0.0);
    // The two passes may round the positive's logit differently by a bit.
    const double bound = std::is_same_v<T, double> ? 1e-13 : 1e-5;
    EXPECT_LT(test::max_magnitude(result.dquery), bound);
    EXPECT_LT(test::max_error(result.ditems, c.ditems_start), bound);
  }
}

TYPED_TEST(CudaSoftmax, StaysFiniteWithHugeLogitsAndRepeatsItsBits) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  const Context ctx({.device = Device::kCuda});
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared, Negatives::kAll}) {
    const SoftmaxCase<T> c(
        {.tokens = 1100, .items = 90, .width = 40, .negatives = 20, .kind = kind, .scale = 100.0},
        {.temperature = 0.05, .normalize = false});
    for (const bool at_once : {false, true}) {
      if (at_once && kind == Negatives::kAll) continue;
      const SoftmaxResult first = run(ctx, c, test::kAligned, at_once);
      const SoftmaxResult second = run(ctx, c, test::kAligned, at_once);
      EXPECT_TRUE(std::isfinite(test::max_magnitude(first.loss)));
      EXPECT_TRUE(std::isfinite(test::max_magnitude(first.ditems)));
      EXPECT_TRUE(test::same_bits(first.loss, second.loss));
      EXPECT_TRUE(test::same_bits(first.dquery, second.dquery));
      EXPECT_TRUE(test::same_bits(first.ditems, second.ditems));
    }
  }
}

}  // namespace
}  // namespace turbogr::ops
