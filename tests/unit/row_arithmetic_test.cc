#include "turbogr/ops/dense/row_arithmetic.h"

#include <gtest/gtest.h>

#include "tests/support/block.h"
#include "tests/support/messages.h"

namespace turbogr::ops {
namespace {

using test::Block;
using test::element;
using test::message_of;

template <class T>
class RowArithmeticOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(RowArithmeticOf, Formats);

TYPED_TEST(RowArithmeticOf, AddsAndMultipliesElements) {
  using T = TypeParam;
  using A = Accum<T>;
  for (const std::int64_t rows : {0, 1, 150}) {
    const std::int64_t cols = 7;
    const Tensor a = test::random_tensor<T>({rows, cols}, 1),
                 b = test::random_tensor<T>({rows, cols}, 2);
    const Tensor dy = test::random_tensor<T>({rows, cols}, 3);
    const Block<T> left(a), right(b), d(dy);
    Block<T> sum(a), product(rows, cols), da(rows, cols), db(rows, cols);
    const Context ctx({.threads = 2});
    add_rows<T>(ctx, right.rows(), sum.rows());
    multiply_rows<T>(ctx, left.rows(), right.rows(), product.rows());
    multiply_rows_backward<T>(ctx, left.rows(), right.rows(), d.rows(), da.rows(), db.rows());
    const Tensor sums = sum.values(), products = product.values();
    const Tensor das = da.values(), dbs = db.values();
    const auto rounded = [](double value) {
      return static_cast<double>(convert<A>(convert<T>(static_cast<A>(value))));
    };
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      EXPECT_EQ(element(sums, i), rounded(element(a, i) + element(b, i)));
      EXPECT_EQ(element(products, i), rounded(element(a, i) * element(b, i)));
      EXPECT_EQ(element(das, i), rounded(element(dy, i) * element(b, i)));
      EXPECT_EQ(element(dbs, i), rounded(element(dy, i) * element(a, i)));
    }
  }
}

TEST(RowArithmetic, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  Tensor two(DType::kF32, {2, 4}), three(DType::kF32, {3, 4});
  const Rows<float> a = two.view<float, 2>(), wrong = three.view<float, 2>();
  EXPECT_EQ(message_of([&] { add_rows<float>(ctx, a, wrong); }),
            "add_rows: y is [3, 4]; wanted [2, 4]");
  EXPECT_EQ(message_of([&] { multiply_rows<float>(ctx, a, wrong, a); }),
            "multiply_rows: b is [3, 4]; wanted [2, 4]");
  EXPECT_EQ(message_of([&] { multiply_rows_backward<float>(ctx, a, a, a, a, wrong); }),
            "multiply_rows_backward: db is [3, 4]; wanted [2, 4]");
}

}  // namespace
}  // namespace turbogr::ops
