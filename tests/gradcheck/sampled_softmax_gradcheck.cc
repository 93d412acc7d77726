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

}  // namespace
}  // namespace turbogr::ops
