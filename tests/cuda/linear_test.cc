// Gradients of a linear layer's parameters on both devices, against double.
#include "turbogr/ops/dense/linear.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/on_device.h"

namespace turbogr::ops {
namespace {

using test::Placed;

template <class T>
class CudaLinear : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(CudaLinear, Formats);

// start + the column sums of dy, added up in R and rounded to Out.
template <class R, class Out>
Tensor column_sums(const Tensor& start, const Tensor& dy) {
  const std::int64_t rows = dy.shape()[0], cols = dy.shape()[1];
  Tensor out(dtype_of<Out>(), {cols});
  for (std::int64_t c = 0; c < cols; ++c) {
    R sum = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      sum += static_cast<R>(test::element(dy, r * cols + c));
    }
    out.view<Out, 1>()(c) = static_cast<Out>(static_cast<R>(test::element(start, c)) + sum);
  }
  return out;
}

TYPED_TEST(CudaLinear, AddsTheColumnSumsToTheBiasGradient) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  using A = Accum<T>;
  for (const std::int64_t cols : {1, 7, 64, 264, 1024, 2504}) {
    for (const std::int64_t rows : {1, 5, 1700, 6500}) {
      const test::Margins margins = cols % 8 == 0 ? test::kAligned : test::kCrooked;
      const Tensor x = test::random_tensor<T>({rows, 8}, 1);
      const Tensor dy = test::random_tensor<T>({rows, cols}, 2);
      const Tensor start = test::random_tensor<A>({cols}, 3);
      const Tensor plain = column_sums<A, A>(start, dy),
                   exact = column_sums<double, double>(start, dy);
      for (const Device device : test::devices()) {
        SCOPED_TRACE(::testing::Message() << name_of(device) << " " << rows << "x" << cols);
        const Context ctx({.device = device, .threads = 1});
        PackedWeight<T> weight(ctx, 8, cols);
        ctx.workspace().reserve(std::max(linear_workspace_bytes<T>(ctx, weight),
                                         linear_backward_workspace_bytes<T>(ctx, weight, rows)));
        const Tensor w = test::place(ctx, test::random_tensor<T>({8, cols}, 4));
        weight.pack(ctx, w.view<T, 2>());
        const Placed<T> in(ctx, x, test::kAligned), din(ctx, dy, margins);
        Tensor bits[2];
        for (Tensor& db : bits) {
          Tensor sums = test::place(ctx, start);
          linear_backward<T>(ctx, in.rows(), weight, din.rows(), {},
                             {.db = sums.template view<A, 1>()});
          db = to_host(ctx, sums);
        }
        EXPECT_TRUE(test::matches(bits[0], plain, exact));
        EXPECT_TRUE(test::same_bits(bits[0], bits[1]));
      }
    }
  }
}

TYPED_TEST(CudaLinear, ReadsAWeightInPlaceAndAddsToItsGradient) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  using A = Accum<T>;
  constexpr std::int64_t kRows = 300, kInputs = 40, kOutputs = 56;
  const Context ctx({.device = Device::kCuda});
  const Tensor x = test::random_tensor<T>({kRows, kInputs}, 1);
  const Tensor dy = test::random_tensor<T>({kRows, kOutputs}, 2);
  const Tensor start = test::random_tensor<A>({kInputs, kOutputs}, 3);
  const Tensor w = test::place(ctx, test::random_tensor<T>({kInputs, kOutputs}, 4));
  const Placed<T> in(ctx, x, test::kAligned), din(ctx, dy, test::kAligned);
  PackedWeight<T> packed(ctx, kInputs, kOutputs), written(ctx, kInputs, kOutputs);
  ctx.workspace().reserve(std::max(linear_workspace_bytes<T>(ctx, packed),
                                   linear_backward_workspace_bytes<T>(ctx, packed, kRows)));
  packed.pack(ctx, w.view<T, 2>());
  copy_bytes(ctx, written.plain().data, w.data(), w.bytes());
  Tensor outputs[2];
  for (const int which : {0, 1}) {
    Tensor y(dtype_of<T>(), {kRows, kOutputs}, Device::kCuda);
    linear<T>(ctx, in.rows(), which == 0 ? packed : written, {}, y.view<T, 2>());
    outputs[which] = to_host(ctx, y);
  }
  EXPECT_TRUE(test::same_bits(outputs[0], outputs[1]));
  Tensor dw = test::place(ctx, start);
  linear_backward<T>(ctx, in.rows(), written, din.rows(), {}, {.dw = dw.view<A, 2>()});
  const Tensor added = to_host(ctx, dw);
  for (std::int64_t k = 0; k < kInputs; ++k) {
    for (std::int64_t c = 0; c < kOutputs; ++c) {
      double want = test::element(start, k * kOutputs + c);
      for (std::int64_t r = 0; r < kRows; ++r) {
        want += test::element(x, r * kInputs + k) * test::element(dy, r * kOutputs + c);
      }
      ASSERT_NEAR(test::element(added, k * kOutputs + c), want, 1e-3) << k << ", " << c;
    }
  }
}

}  // namespace
}  // namespace turbogr::ops
