#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/gradcheck.h"
#include "turbogr/ops/attention/target_attention.h"

namespace turbogr::ops {
namespace {

TEST(TargetAttentionGradient, MatchesCentralDifferences) {
  const Context ctx({.threads = 1});
  const std::vector<std::int64_t> offsets = {0, 5, 5, 7, 8}, starts = {0, 2, 2, 2, 3};
  const TargetSequences sequences = {test::view_of(offsets), test::view_of(starts)};
  const TargetAttentionOptions options = {.heads = 2, .alpha = 0.7, .norm_length = 3};
  Tensor q = test::random_tensor<double>({3, 6}, 1), k = test::random_tensor<double>({8, 6}, 2),
         v = test::random_tensor<double>({8, 4}, 3);
  const Tensor dout = test::random_tensor<double>({3, 4}, 4);
  const auto read = [](const Tensor& tensor) { return tensor.view<double, 2>(); };
  const auto loss = [&] {
    Tensor out(DType::kF64, {3, 4});
    target_attention<double>(ctx, sequences, read(q), read(k), read(v), options,
                             out.view<double, 2>());
    return test::dot(out, dout);
  };
  Tensor dq(DType::kF64, q.shape()), dk(DType::kF64, k.shape()), dv(DType::kF64, v.shape());
  target_attention_backward<double>(ctx, sequences, read(q), read(k), read(v), options, read(dout),
                                    dq.view<double, 2>(), dk.view<double, 2>(),
                                    dv.view<double, 2>());
  EXPECT_LT(test::gradient_gap(q, dq, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(k, dk, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(v, dv, loss), 1e-8);
}

}  // namespace
}  // namespace turbogr::ops
