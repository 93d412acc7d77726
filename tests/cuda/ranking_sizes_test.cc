// The ranking model's operators on slices of more than 2^31 elements, as a DLRMv4 batch has them:
// the first, a middle and the last row come out as they do alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/support/far_row_cases.h"
#include "tests/support/on_device.h"
#include "turbogr/ops/dense/gated_norm.h"
#include "turbogr/ops/dense/row_arithmetic.h"
#include "turbogr/ops/dense/swish_norm.h"
#include "turbogr/ops/rows/event_targets.h"
#include "turbogr/ops/rows/update.h"
#include "turbogr/ops/rows/weighted_rows.h"

namespace turbogr::ops {
namespace {

using test::Placed;
using test::random_tensor;

constexpr std::int64_t kLargeRows = 4'400'000, kLargeCols = 512;  // 2.25 G elements
constexpr std::size_t kGiB = std::size_t{1} << 30;

#define TGR_SKIP_WITHOUT_ROOM(gib)                            \
  TGR_SKIP_WITHOUT_GPU();                                     \
  if (device_memory().free < (gib)*kGiB) {                    \
    GTEST_SKIP() << "less than " << (gib) << " GiB are free"; \
  }

std::vector<std::int64_t> looked_at(std::int64_t rows) { return {0, rows / 2, rows - 1}; }

// Zeros but for three rows.
Tensor large_with(const Context& ctx, const Tensor& three, std::int64_t rows) {
  const std::int64_t cols = three.shape()[1];
  Tensor large(DType::kBf16, {rows, cols}, Device::kCuda);
  const Tensor at = test::place(ctx, test::tensor_of(looked_at(rows)));
  const Tensor from = test::place(ctx, three);
  spread_rows<bf16>(ctx, Rows<const bf16>(const_cast<Tensor&>(from).view<bf16, 2>()),
                    at.view<std::int64_t, 1>(), Rows<bf16>(large.view<bf16, 2>()));
  return large;
}

Tensor three_of(const Context& ctx, Tensor& large) {
  const Rows<bf16> rows = large.view<bf16, 2>();
  Tensor three(DType::kBf16, {3, rows.cols}, Device::kCuda);
  const Rows<bf16> target = three.view<bf16, 2>();
  const std::vector<std::int64_t> places = looked_at(rows.rows);
  for (std::size_t i = 0; i < places.size(); ++i) {
    copy_bytes(ctx, target.row(static_cast<std::int64_t>(i)), rows.row(places[i]),
               static_cast<std::size_t>(rows.cols) * sizeof(bf16));
  }
  return to_host(ctx, three);
}

Rows<const bf16> read_only(Tensor& tensor) { return Rows<const bf16>(tensor.view<bf16, 2>()); }

struct SavedStatistics {
  Tensor mean, rstd;
  explicit SavedStatistics(std::int64_t rows)
      : mean(DType::kF32, {rows}, Device::kCuda), rstd(DType::kF32, {rows}, Device::kCuda) {}
  NormStatistics<float> written() { return {mean.view<float, 1>(), rstd.view<float, 1>()}; }
  NormStatistics<const float> read() { return {mean.view<float, 1>(), rstd.view<float, 1>()}; }
};

// Elements past 2^31: the last row of a slice so large must be reached, and no other.
TEST(CudaRankingSizes, RowsPastTwoToTheThirtyFirstElementsAreReached) {
  TGR_SKIP_WITHOUT_ROOM(12);
  const std::int64_t rows = kLargeRows, cols = kLargeCols;
  const Context ctx({.device = Device::kCuda});
  Tensor big(DType::kBf16, {rows, cols}, Device::kCuda);
  const std::vector<std::int64_t> places = {0, rows / 2, rows - 1};
  const Tensor at = test::place(ctx, test::tensor_of(places));
  const Tensor given = random_tensor<bf16>({3, cols}, 1);
  const Placed<bf16> from(ctx, given, test::kAligned);
  const Rows<bf16> all = big.view<bf16, 2>();
  spread_rows<bf16>(ctx, from.rows(), at.view<std::int64_t, 1>(), all);
  add_rows<bf16>(ctx, Rows<const bf16>(all), all);  // twice as much
  // Every row once, in one sum: only the three are not zero.
  std::vector<std::int32_t> index(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<std::int32_t>(i);
  const std::vector<std::int64_t> offsets = {0, rows - 1, rows};
  const std::vector<float> ones(index.size(), 1.0f);
  const Tensor starts = test::place(ctx, test::tensor_of(offsets));
  const Tensor which = test::place(ctx, test::tensor_of(index));
  const Tensor factors = test::place(ctx, test::tensor_of(ones));
  ctx.workspace().reserve(sum_weighted_rows_workspace_bytes(ctx, rows, cols));
  Placed<float> sums(ctx, 2, cols, test::kAligned);
  sum_weighted_rows<bf16, float>(
      ctx, Rows<const bf16>(all),
      {starts.view<std::int64_t, 1>(), which.view<std::int32_t, 1>(), factors.view<float, 1>()},
      sums.rows());
  const Tensor got = sums.fetch(ctx);
  for (std::int64_t c = 0; c < cols; ++c) {
    EXPECT_EQ(test::element(got, c),
              2 * test::element(given, c) + 2 * test::element(given, cols + c));
    EXPECT_EQ(test::element(got, cols + c), 2 * test::element(given, 2 * cols + c));
  }
}

template <class Forward>
void check_forward(std::int64_t rows, std::int64_t cols, std::int64_t out_cols,
                   const Forward& forward) {
  const Context ctx({.device = Device::kCuda});
  const Tensor given = random_tensor<bf16>({3, cols}, 2);
  const auto run = [&](Tensor& x) {
    Tensor y(DType::kBf16, {x.shape()[0], out_cols}, Device::kCuda);
    SavedStatistics saved(x.shape()[0]);
    forward(ctx, x, y, saved);
    return y;
  };
  Tensor small = test::place(ctx, given);
  const Tensor wanted = to_host(ctx, run(small));
  Tensor large = large_with(ctx, given, rows);
  Tensor y = run(large);
  EXPECT_TRUE(test::same_bits(three_of(ctx, y), wanted));
}

TEST(CudaRankingSizes, NormsReachRowsPastTwoToTheThirtyFirstElements) {
  TGR_SKIP_WITHOUT_ROOM(12);
  check_forward(kLargeRows, kLargeCols, kLargeCols,
                [](const Context& ctx, Tensor& x, Tensor& y, SavedStatistics& saved) {
                  ctx.workspace().reserve(norm_workspace_bytes<bf16>(ctx, kLargeCols));
                  norm<bf16>(ctx, read_only(x), {}, y.view<bf16, 2>(), saved.written());
                });
  check_forward(kLargeRows, kLargeCols, kLargeCols,
                [](const Context& ctx, Tensor& x, Tensor& y, SavedStatistics& saved) {
                  ctx.workspace().reserve(swish_norm_workspace_bytes<bf16>(ctx, kLargeCols));
                  swish_norm<bf16>(ctx, read_only(x), {}, y.view<bf16, 2>(), saved.written());
                });
}

// Here it is the output, three times as wide, that is so large.
TEST(CudaRankingSizes, GatesReachRowsPastTwoToTheThirtyFirstElements) {
  TGR_SKIP_WITHOUT_ROOM(12);
  check_forward(kLargeRows / 3 + 1, kLargeCols, 3 * kLargeCols,
                [](const Context& ctx, Tensor& x, Tensor& y, SavedStatistics& saved) {
                  ctx.workspace().reserve(gated_norm_workspace_bytes<bf16>(ctx, kLargeCols));
                  gated_norm<bf16>(ctx, read_only(x), read_only(x),
                                   {.concat = true, .silu_gate = true, .concat_input = true},
                                   y.view<bf16, 2>(), saved.written());
                });
}

TEST(CudaRankingSizes, GradientsReachRowsPastTwoToTheThirtyFirstElements) {
  TGR_SKIP_WITHOUT_ROOM(20);
  const Context ctx({.device = Device::kCuda});
  ctx.workspace().reserve(swish_norm_workspace_bytes<bf16>(ctx, kLargeCols));
  const Tensor given = random_tensor<bf16>({3, kLargeCols}, 3);
  const Tensor slope = random_tensor<bf16>({3, kLargeCols}, 4);
  const auto run = [&](Tensor& x, Tensor& dy) {
    Tensor y(DType::kBf16, x.shape(), Device::kCuda);
    SavedStatistics saved(x.shape()[0]);
    swish_norm<bf16>(ctx, read_only(x), {}, y.view<bf16, 2>(), saved.written());
    swish_norm_backward<bf16>(ctx, read_only(x), read_only(dy), {}, saved.read(),
                              {.dx = y.view<bf16, 2>()});
    return y;
  };
  Tensor small = test::place(ctx, given), small_slope = test::place(ctx, slope);
  const Tensor wanted = to_host(ctx, run(small, small_slope));
  Tensor large = large_with(ctx, given, kLargeRows);
  Tensor large_slope = large_with(ctx, slope, kLargeRows);
  Tensor dx = run(large, large_slope);
  EXPECT_TRUE(test::same_bits(three_of(ctx, dx), wanted));
}

// The same operators on rows far apart and close together. A library may take another product for
// another stride, so results are compared up to rounding.
template <class Run>
void expect_same_far(const Run& run) {
  const Context ctx({.device = Device::kCuda, .deterministic = true});
  const test::Outputs near = run(ctx, test::Apart::kNear), far = run(ctx, test::Apart::kFar);
  ASSERT_EQ(near.size(), far.size());
  for (std::size_t i = 0; i < near.size(); ++i) {
    const double most = test::max_magnitude(near[i]);
    EXPECT_GT(most, 0) << "output " << i;
    EXPECT_LE(test::max_error(far[i], near[i]), 0.01 * most) << "output " << i;
  }
}

// Eight matrices in bf16 are 38 GiB.
#define TGR_EXPECT_SAME_FAR(run, ...)                         \
  TGR_SKIP_WITHOUT_ROOM(50);                                  \
  expect_same_far([](const Context& ctx, test::Apart apart) { \
    return run<bf16>(ctx, apart __VA_OPT__(, ) __VA_ARGS__);  \
  })

TEST(CudaRankingSizes, FarRowsAreAddedMultipliedAndDropped) {
  TGR_EXPECT_SAME_FAR(test::far_sums_and_products);
}
TEST(CudaRankingSizes, FarRowsAreNormalised) { TGR_EXPECT_SAME_FAR(test::far_norms); }
TEST(CudaRankingSizes, FarRowsAreGated) { TGR_EXPECT_SAME_FAR(test::far_gates); }
TEST(CudaRankingSizes, FarRowsGoThroughLinearLayers) {
  TGR_EXPECT_SAME_FAR(test::far_linear, 2048);
}
TEST(CudaRankingSizes, FarRowsAreInputOfARankingModel) {
  TGR_EXPECT_SAME_FAR(test::far_event_input);
}
TEST(CudaRankingSizes, FarRowsAreMadeOfActions) { TGR_EXPECT_SAME_FAR(test::far_actions); }
TEST(CudaRankingSizes, FarRowsAreTargetsThatFindTheirWayBack) {
  TGR_EXPECT_SAME_FAR(test::far_targets);
}
TEST(CudaRankingSizes, FarRowsAttendToEachOther) { TGR_EXPECT_SAME_FAR(test::far_attention); }
TEST(CudaRankingSizes, FarRowsAreSeenByTargets) { TGR_EXPECT_SAME_FAR(test::far_target_attention); }
TEST(CudaRankingSizes, FarRowsAreMovedAndSummed) { TGR_EXPECT_SAME_FAR(test::far_moves); }

// Rows `ids` of a table get the same start and two steps, and are read again.
Tensor updated_rows(std::int64_t rows, const std::vector<std::int64_t>& ids,
                    RowOptimiser optimiser) {
  const Context ctx({.device = Device::kCuda});
  const std::int64_t count = std::ssize(ids);
  const bool adagrad = optimiser == RowOptimiser::kAdaGrad;
  Tensor weight(DType::kF32, {rows, kLargeCols}, Device::kCuda);
  Tensor first(DType::kF32, {adagrad ? 0 : rows, kLargeCols}, Device::kCuda);
  Tensor second(DType::kF32, {rows, adagrad ? 1 : kLargeCols}, Device::kCuda);
  const Tensor start = test::place(ctx, random_tensor<float>({count, kLargeCols}, 1));
  const Tensor gradient = test::place(ctx, random_tensor<float>({count, kLargeCols}, 2));
  const Tensor which = test::place(ctx, test::tensor_of(ids));
  spread_rows<float>(ctx, Rows<const float>(start.view<float, 2>()), which.view<std::int64_t, 1>(),
                     Rows<float>(weight.view<float, 2>()));
  const TableRows table = {.weight = weight.view<float, 2>(),
                           .first_moment = first.view<float, 2>(),
                           .second_moment = second.view<float, 2>()};
  for (int step = 1; step <= 2; ++step) {
    update_rows(ctx, optimiser, table, which.view<std::int64_t, 1>(),
                Rows<const float>(gradient.view<float, 2>()),
                {.rate = 0.1, .step = static_cast<double>(step)}, nullptr);
  }
  Tensor got(DType::kF32, {count, kLargeCols}, Device::kCuda);
  gather_rows<float, float>(ctx, Rows<const float>(std::as_const(weight).view<float, 2>()),
                            which.view<std::int64_t, 1>(), Rows<float>(got.view<float, 2>()));
  return to_host(ctx, got);
}

TEST(CudaRankingSizes, TablesPastTwoToTheThirtyFirstElementsAreReadAndUpdated) {
  TGR_SKIP_WITHOUT_ROOM(40);
  const std::vector<std::int64_t> ids = {0, 1, 2'100'000, 4'194'303, 4'194'304, kLargeRows - 1};
  std::vector<std::int64_t> close(ids.size());
  std::iota(close.begin(), close.end(), std::int64_t{0});
  for (const RowOptimiser optimiser : {RowOptimiser::kAdamW, RowOptimiser::kAdaGrad}) {
    EXPECT_TRUE(test::same_bits(updated_rows(kLargeRows, ids, optimiser),
                                updated_rows(std::ssize(ids), close, optimiser)));
  }
}

}  // namespace
}  // namespace turbogr::ops
