#include <gtest/gtest.h>

#include "tests/support/gradcheck.h"
#include "tests/support/softmax_case.h"

namespace turbogr::ops {
namespace {

using test::gradient_gap;
using test::Negatives;
using test::SoftmaxCase;
using test::SoftmaxResult;

TEST(SampledSoftmax, BackwardMatchesCentralDifferences) {
  const Context ctx({.threads = 2});
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared, Negatives::kAll}) {
    for (const bool normalize : {false, true}) {
      SoftmaxCase<double> softmax({.tokens = 4,
                                   .items = 5,
                                   .width = 3,
                                   .negatives = 6,
                                   .kind = kind,
                                   .correction = kind != Negatives::kAll},
                                  {.temperature = 0.4, .normalize = normalize});
      softmax.ditems_start = Tensor(DType::kF64, {5, 3});
      const SoftmaxResult result = softmax.run(ctx);
      Tensor loss(DType::kF64, {4});
      Tensor saved(DType::kF64, {4});
      const auto total = [&] {
        softmax.forward(ctx, loss, saved);
        return test::dot(loss, softmax.dloss);
      };
      EXPECT_LT(gradient_gap(softmax.query, result.dquery, total), 1e-8);
      EXPECT_LT(gradient_gap(softmax.items, result.ditems, total), 1e-8);
    }
  }
}

// f16 rows cannot be moved by a small step, so they are compared with the same numbers in a second
// half of the items, whose gradient is checked above. An item may be one token's positive and
// another's negative: its gradient is the sum of both.
TEST(SampledSoftmax, BackwardOfHalfRowsIsThatOfTheNumbersTheyStandFor) {
  const Context ctx({.threads = 2});
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared}) {
    for (const bool normalize : {false, true}) {
      const SoftmaxOptions options = {.temperature = 0.4, .normalize = normalize};
      SoftmaxCase<double> half(
          {.tokens = 6, .items = 8, .width = 3, .negatives = 4, .kind = kind, .half = true},
          options);
      half.positive = {0, 1, 2, 0, 1, 2};
      for (std::size_t j = 0; j < half.negatives.size(); ++j) {
        // Own sets: rows 0-2 of other tokens' positives, and the rest. Nothing masked.
        half.negatives[j] = static_cast<std::int32_t>(
            kind == Negatives::kOwn && j % 2 == 0 ? (j / 4 + 1) % 3 : 3 + j % 5);
      }
      half.ditems_start = Tensor(DType::kF64, {8, 3});
      SoftmaxCase<double> twice(
          {.tokens = 6, .items = 16, .width = 3, .negatives = 4, .kind = kind}, options);
      twice.positive = half.positive;
      twice.query = test::converted<double, double>(half.query);
      twice.dloss = test::converted<double, double>(half.dloss);
      twice.ditems_start = Tensor(DType::kF64, {16, 3});
      for (std::int64_t i = 0; i < 24; ++i) {
        double* rows = reinterpret_cast<double*>(twice.items.data());
        rows[i] = test::element(half.items, i);
        rows[24 + i] = test::element(half.read_items, i);
      }
      for (std::size_t j = 0; j < half.negatives.size(); ++j) {
        twice.negatives[j] = half.negatives[j] + 8;
      }
      const SoftmaxResult a = half.run(ctx);
      const SoftmaxResult b = twice.run(ctx);
      EXPECT_LT(test::max_error(a.loss, b.loss), 1e-13);
      EXPECT_LT(test::max_error(a.dquery, b.dquery), 1e-12);
      for (std::int64_t i = 0; i < 24; ++i) {
        EXPECT_NEAR(test::element(a.ditems, i),
                    test::element(b.ditems, i) + test::element(b.ditems, 24 + i), 1e-12);
      }
      Tensor loss(DType::kF64, {6});
      Tensor saved(DType::kF64, {6});
      EXPECT_LT(gradient_gap(half.query, a.dquery,
                             [&] {
                               half.forward(ctx, loss, saved);
                               return test::dot(loss, half.dloss);
                             }),
                1e-8);
    }
  }
}

// Few items, so that partners draw each other's positives and masks bite.
TEST(SampledSoftmax, BackwardOfSharedNegativesMatchesCentralDifferences) {
  const Context ctx({.threads = 2});
  for (const NegativeSharing sharing : {NegativeSharing::kLogits, NegativeSharing::kEmbeddings}) {
    for (const std::int64_t factor : {2, 3, 9}) {
      for (const bool normalize : {false, true}) {
        SoftmaxCase<double> softmax(
            {.tokens = 5, .items = 7, .width = 3, .negatives = 3, .correction = true},
            {.temperature = 0.4,
             .normalize = normalize,
             .sharing = sharing,
             .sharing_factor = factor},
            static_cast<std::uint64_t>(factor));
        softmax.ditems_start = Tensor(DType::kF64, {7, 3});
        const SoftmaxResult result = softmax.run(ctx);
        Tensor loss(DType::kF64, {5});
        Tensor saved(DType::kF64, {5});
        const auto total = [&] {
          softmax.forward(ctx, loss, saved);
          return test::dot(loss, softmax.dloss);
        };
        EXPECT_LT(gradient_gap(softmax.query, result.dquery, total), 1e-8);
        EXPECT_LT(gradient_gap(softmax.items, result.ditems, total), 1e-8);
      }
    }
  }
}

}  // namespace
}  // namespace turbogr::ops
