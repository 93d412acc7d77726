// Whole vectors and rows of action bits, against plain loops.
#include "turbogr/ops/dense/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/block.h"
#include "tests/support/data.h"
#include "tests/support/messages.h"
#include "turbogr/ops/rows/action_rows.h"
#include "turbogr/ops/rows/random_rows.h"

namespace turbogr::ops {
namespace {

using test::message_of;
using test::random_tensor;

TEST(Convert, RoundsAsTheFormatsDo) {
  const Context ctx({.threads = 2});
  for (const std::int64_t count : {0, 1, 70001}) {  // more than a piece
    const Tensor from = random_tensor<float>({count}, 1);
    Tensor narrow(DType::kBf16, {count}), wide(DType::kF64, {count});
    convert_values<bf16, float>(ctx, from.view<float, 1>(), narrow.view<bf16, 1>());
    convert_values<double, float>(ctx, from.view<float, 1>(), wide.view<double, 1>());
    EXPECT_TRUE(test::same_bits(narrow, test::converted<bf16, float>(from)));
    EXPECT_TRUE(test::same_bits(wide, test::converted<double, float>(from)));
  }
  Tensor three(DType::kF32, {3}), two(DType::kBf16, {2});
  EXPECT_EQ(message_of([&] {
              convert_values<bf16, float>(ctx, std::as_const(three).view<float, 1>(),
                                          two.view<bf16, 1>());
            }),
            "convert_values: to has 2 elements; wanted 3");
}

TEST(Convert, FillsAndSumsInAFixedOrder) {
  std::vector<double> sums;
  for (const int threads : {1, 2, 3}) {
    const Context ctx({.threads = threads});
    Tensor values = random_tensor<float>({20001}, 2);
    ctx.workspace().reserve(sum_values_workspace_bytes(ctx, values.size()));
    double sum = -1;
    sum_values<float>(ctx, std::as_const(values).view<float, 1>(), &sum);
    sums.push_back(sum);
    double want = 0;
    for (std::int64_t i = 0; i < values.size(); ++i) want += test::element(values, i);
    EXPECT_NEAR(sum, want, 1e-9);
    fill<float>(ctx, -2.5f, values.view<float, 1>());
    sum_values<float>(ctx, std::as_const(values).view<float, 1>(), &sum);
    EXPECT_EQ(sum, -2.5 * 20001);
    sum_values<float>(ctx, {}, &sum);
    EXPECT_EQ(sum, 0);
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

TEST(Convert, MeasuresRows) {
  const Context ctx({.threads = 2});
  Tensor x = random_tensor<bf16>({5, 33}, 3);
  for (std::int64_t c = 0; c < 33; ++c) x.view<bf16, 2>()(4, c) = bf16(0.0f);
  Tensor inverse(DType::kF32, {5});
  inverse_norms<bf16>(ctx, std::as_const(x).view<bf16, 2>(), 0.5, inverse.view<float, 1>());
  for (std::int64_t r = 0; r < 5; ++r) {
    double squares = 0;
    for (std::int64_t c = 0; c < 33; ++c) squares += std::pow(test::element(x, r * 33 + c), 2);
    EXPECT_NEAR(test::element(inverse, r), 1 / std::max(0.5, std::sqrt(squares)), 1e-7) << r;
  }
  EXPECT_EQ(message_of([&] {
              inverse_norms<bf16>(ctx, std::as_const(x).view<bf16, 2>(), 0,
                                  inverse.view<float, 1>());
            }),
            "inverse_norms: eps is 0; it must be above 0");
}

TEST(ActionRows, SumTheRowsOfSetBitsAndSendGradientsBack) {
  const Context ctx({.threads = 2});
  const Tensor table = random_tensor<float>({3, 6}, 1), drows = random_tensor<float>({4, 6}, 2);
  const std::vector<std::uint32_t> bits = {0u, 5u, 2u, 7u};
  const View<const std::uint32_t, 1> masks = {bits.data(), {4}};
  test::Block<float> rows(4, 6);
  Tensor dtable = random_tensor<float>({3, 6}, 3);
  const Tensor start = test::converted<float, float>(dtable);
  action_rows<float>(ctx, table.view<float, 2>(), masks, rows.rows());
  action_rows_backward<float>(ctx, drows.view<float, 2>(), masks, dtable.view<float, 2>());
  const Tensor out = rows.values();
  for (std::int64_t c = 0; c < 6; ++c) {
    const auto t = [&](std::int64_t r) { return test::element(table, r * 6 + c); };
    const auto d = [&](std::int64_t r) { return test::element(drows, r * 6 + c); };
    EXPECT_EQ(test::element(out, c), 0);
    EXPECT_NEAR(test::element(out, 6 + c), t(0) + t(2), 1e-6);
    EXPECT_NEAR(test::element(out, 12 + c), t(1), 1e-6);
    EXPECT_NEAR(test::element(out, 18 + c), t(0) + t(1) + t(2), 1e-6);
    EXPECT_NEAR(test::element(dtable, c) - test::element(start, c), d(1) + d(3), 1e-6);
    EXPECT_NEAR(test::element(dtable, 6 + c) - test::element(start, 6 + c), d(2) + d(3), 1e-6);
  }
  Tensor wide(DType::kF32, {33, 6});
  EXPECT_EQ(message_of([&] {
              action_rows<float>(ctx, std::as_const(wide).view<float, 2>(), masks, rows.rows());
            }),
            "action_rows: a table of 33 rows; a mask has a bit for 1 to 32");
}

TEST(RandomRows, DependOnTheirOwnIndexAlone) {
  const Context ctx({.threads = 2});
  Tensor small(DType::kF32, {70, 5}), large(DType::kF32, {200, 5});
  for (const RowStart start : {RowStart(0.5), RowStart::uniform(0.5)}) {
    large = Tensor(DType::kF32, {200, 5});
    random_rows(ctx, small.view<float, 2>(), 0, 7, start);
    random_rows(ctx, large.view<float, 2>(), 10, 7, start);
    for (std::int64_t i = 0; i < 50; ++i) EXPECT_EQ(test::element(large, i), 0);
    for (std::int64_t i = 50; i < 350; ++i)
      EXPECT_EQ(test::element(large, i), test::element(small, i));
    const double most = start.is_uniform ? 0.5 : 1.0;
    EXPECT_LE(test::max_magnitude(large), most);
    EXPECT_GT(test::max_magnitude(large), 0.8 * most);
    double sum = 0, squares = 0;
    for (std::int64_t i = 50; i < 1000; ++i) {
      sum += test::element(large, i);
      squares += test::element(large, i) * test::element(large, i);
    }
    EXPECT_NEAR(sum / 950, 0, 0.05);
    // Uniform: bound^2 / 3; the normal one is cut at two deviations.
    EXPECT_NEAR(squares / 950, 0.25 * (start.is_uniform ? 1.0 / 3 : 0.774), 0.03);
  }
  EXPECT_EQ(message_of([&] { random_rows(ctx, small.view<float, 2>(), 71, 7, 0.5); }),
            "random_rows: first row 71 of a table of 70 rows");
}

}  // namespace
}  // namespace turbogr::ops
