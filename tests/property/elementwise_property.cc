#include <gtest/gtest.h>

#include "tests/support/block.h"
#include "tests/support/data.h"
#include "turbogr/ops/dense/l2_normalize.h"
#include "turbogr/ops/dense/silu.h"
#include "turbogr/ops/dense/swiglu.h"

namespace turbogr::ops {
namespace {

using test::random_tensor;
using test::same_bits;

template <class T>
class ElementwiseLaw : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(ElementwiseLaw, Formats);

TYPED_TEST(ElementwiseLaw, BitsDoNotDependOnTheNumberOfThreads) {
  using T = TypeParam;
  const Tensor a = random_tensor<T>({200, 45}, 1), b = random_tensor<T>({200, 45}, 2);
  const Tensor dy = random_tensor<T>({200, 45}, 3);
  const Rows<const T> ra = a.view<T, 2>(), rb = b.view<T, 2>(), rd = dy.view<T, 2>();
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 3}) {
    const Context ctx({.threads = threads});
    std::vector<Tensor> made;
    for (int i = 0; i < 7; ++i) made.emplace_back(dtype_of<T>(), a.shape());
    const auto out = [&](std::size_t i) { return Rows<T>(made[i].template view<T, 2>()); };
    Tensor inverse(dtype_of<Accum<T>>(), {200});
    swiglu<T>(ctx, ra, rb, out(0));
    swiglu_backward<T>(ctx, ra, rb, rd, out(1), out(2));
    silu<T>(ctx, ra, out(3));
    silu_backward<T>(ctx, ra, rd, out(4));
    l2_normalize<T>(ctx, ra, {}, out(5), inverse.view<Accum<T>, 1>());
    l2_normalize_backward<T>(ctx, ra, rd, inverse.view<Accum<T>, 1>(), {}, out(6));
    if (threads == 1) {
      first = std::move(made);
      continue;
    }
    for (std::size_t i = 0; i < 7; ++i) EXPECT_TRUE(same_bits(first[i], made[i])) << i;
  }
}

TYPED_TEST(ElementwiseLaw, NormalisedRowsHaveLengthOneAndAGradientAcrossThem) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  const Tensor x = random_tensor<T>({50, 33}, 1, 7), dy = random_tensor<T>({50, 33}, 2);
  Tensor y(dtype_of<T>(), x.shape()), dx(dtype_of<T>(), x.shape());
  Tensor inverse(dtype_of<Accum<T>>(), {50});
  l2_normalize<T>(ctx, x.view<T, 2>(), {}, y.view<T, 2>(), inverse.view<Accum<T>, 1>());
  l2_normalize_backward<T>(ctx, x.view<T, 2>(), dy.view<T, 2>(), inverse.view<Accum<T>, 1>(), {},
                           dx.view<T, 2>());
  const double unit = std::is_same_v<T, bf16> ? 0x1p-8 : 0x1p-20;
  for (std::int64_t r = 0; r < 50; ++r) {
    double length = 0, along = 0;
    for (std::int64_t c = 0; c < 33; ++c) {
      length += std::pow(test::element(y, r * 33 + c), 2);
      along += test::element(y, r * 33 + c) * test::element(dx, r * 33 + c);
    }
    EXPECT_NEAR(length, 1.0, 2 * unit);
    EXPECT_NEAR(along, 0.0, unit * test::max_magnitude(dx) * 33);
  }
}

}  // namespace
}  // namespace turbogr::ops
