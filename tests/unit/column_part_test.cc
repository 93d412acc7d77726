#include "turbogr/model/column_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/tolerance.h"

namespace turbogr::model {
namespace {

// Products with two runs of columns, and their gradients, are those of the whole.
TEST(ColumnPart, IsTheWholesOwnColumns) {
  const Context ctx({.threads = 1, .workspace_bytes = 1 << 16});
  const std::vector<std::int64_t> columns = {1, 2, 5, 6, 7};
  const Tensor weight = test::random_tensor<double>({3, 9}, 1),
               bias = test::random_tensor<double>({9}, 2),
               x = test::random_tensor<double>({4, 3}, 3),
               dy = test::random_tensor<double>({4, 5}, 4);
  ColumnPart<double> part({{1, 2}, {5, 3}});
  part.refresh(ctx, weight.view<double, 2>(), bias.view<double, 1>());
  ctx.workspace().reserve(ops::linear_backward_workspace_bytes<double>(ctx, part.packed(), 4));
  Tensor y(DType::kF64, {4, 5}), dx(DType::kF64, {4, 3});
  Tensor dweight = test::random_tensor<double>({3, 9}, 5),
         dbias = test::random_tensor<double>({9}, 6);
  const Tensor weight_start = test::converted<double, double>(dweight),
               bias_start = test::converted<double, double>(dbias);
  ops::linear<double>(ctx, x.view<double, 2>(), part.packed(), {.bias = part.bias()},
                      y.view<double, 2>());
  for (int round = 0; round < 2; ++round) {  // what was added before is not added again
    part.clear_gradients(ctx);
    ops::linear_backward<double>(
        ctx, x.view<double, 2>(), part.packed(), dy.view<double, 2>(), {},
        {.dx = dx.view<double, 2>(), .dw = part.dweight(), .db = part.dbias()});
  }
  part.add_gradients(ctx, dweight.view<double, 2>(), dbias.view<double, 1>());
  const auto place_of = [&](std::int64_t column) {
    return std::find(columns.begin(), columns.end(), column) - columns.begin();
  };
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t c = 0; c < 5; ++c) {
      const std::int64_t column = columns[static_cast<std::size_t>(c)];
      double want = bias.view<double, 1>()(column);
      for (std::int64_t k = 0; k < 3; ++k) {
        want += x.view<double, 2>()(i, k) * weight.view<double, 2>()(k, column);
      }
      EXPECT_NEAR((y.view<double, 2>()(i, c)), want, 1e-14);
    }
  }
  for (std::int64_t column = 0; column < 9; ++column) {
    const std::int64_t c = place_of(column);
    double bias_want = bias_start.view<double, 1>()(column);
    for (std::int64_t i = 0; i < 4 && c < 5; ++i) bias_want += dy.view<double, 2>()(i, c);
    EXPECT_NEAR((dbias.view<double, 1>()(column)), bias_want, 1e-14);
    for (std::int64_t k = 0; k < 3; ++k) {
      double want = weight_start.view<double, 2>()(k, column);
      for (std::int64_t i = 0; i < 4 && c < 5; ++i) {
        want += x.view<double, 2>()(i, k) * dy.view<double, 2>()(i, c);
      }
      EXPECT_NEAR((dweight.view<double, 2>()(k, column)), want, 1e-14);
    }
  }
}

}  // namespace
}  // namespace turbogr::model
