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
