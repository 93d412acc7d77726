#include <gtest/gtest.h>

#include "tests/support/block.h"
#include "tests/support/data.h"
#include "turbogr/ops/dense/linear.h"

namespace turbogr::ops {
namespace {

using test::random_tensor;
using test::same_bits;

template <class T>
class LinearLaw : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(LinearLaw, Formats);

TYPED_TEST(LinearLaw, BitsDoNotDependOnTheNumberOfThreads) {
  using T = TypeParam;
  using A = Accum<T>;
  const std::int64_t rows = 700, inputs = 40, outputs = 1300;
  const Tensor x = random_tensor<T>({rows, inputs}, 1), w = random_tensor<T>({inputs, outputs}, 2);
  const Tensor dy = random_tensor<T>({rows, outputs}, 3);
  Tensor first[4];
  for (const int threads : {1, 2, 3}) {
    Context ctx({.threads = threads});
    PackedWeight<T> weight(ctx, inputs, outputs);
    ctx.workspace().reserve(std::max(linear_workspace_bytes(ctx, weight),
                                     linear_backward_workspace_bytes(ctx, weight, rows)));
    weight.pack(ctx, w.view<T, 2>());
    Tensor y(dtype_of<T>(), {rows, outputs}), z(dtype_of<T>(), {rows, outputs});
    Tensor dx(dtype_of<T>(), {rows, inputs}), dw(dtype_of<A>(), {inputs, outputs});
    Tensor db(dtype_of<A>(), {outputs});
    linear<T>(ctx, x.view<T, 2>(), weight, {.activation = Activation::kSilu}, y.view<T, 2>(),
              z.view<T, 2>());
    linear_backward<T>(ctx, x.view<T, 2>(), weight, dy.view<T, 2>(),
                       {.activation = Activation::kSilu, .z = z.view<T, 2>()},
                       {dx.view<T, 2>(), dw.view<A, 2>(), db.view<A, 1>()});
    Tensor* made[] = {&y, &dx, &dw, &db};
    for (int i = 0; i < 4; ++i) {
      if (threads == 1) {
        first[i] = std::move(*made[i]);
      } else {
        EXPECT_TRUE(same_bits(*made[i], first[i])) << i << " at " << threads << " threads";
      }
    }
  }
}

TYPED_TEST(LinearLaw, RowsAreIndependent) {
  using T = TypeParam;
  const std::int64_t inputs = 24, outputs = 300;
  const Tensor x = random_tensor<T>({200, inputs}, 1), w = random_tensor<T>({inputs, outputs}, 2);
  Context ctx({.threads = 2});
  PackedWeight<T> weight(ctx, inputs, outputs);
  ctx.workspace().reserve(linear_workspace_bytes(ctx, weight));
  weight.pack(ctx, w.view<T, 2>());
  Tensor whole(dtype_of<T>(), {200, outputs}), parts(dtype_of<T>(), {200, outputs});
  linear<T>(ctx, x.view<T, 2>(), weight, {}, whole.view<T, 2>());
  std::int64_t begin = 0;
  for (const std::int64_t count : {1, 0, 17, 130, 52}) {
    Rows<const T> in = x.view<T, 2>();
    Rows<T> out = parts.view<T, 2>();
    linear<T>(ctx, {in.row(begin), count, inputs, inputs}, weight, {},
              {out.row(begin), count, outputs, outputs});
    begin += count;
  }
  // Products of other heights may sum in another order.
  EXPECT_TRUE(test::as_close_as_plain(parts, whole, whole));
}

}  // namespace
}  // namespace turbogr::ops
