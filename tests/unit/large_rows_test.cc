// Operators on more than 2^31 elements, as batches and tables of DLRMv4 have them: what they make
// of rows past that is what they make of the same rows close together.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "tests/support/far_row_cases.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/ops/rows/update.h"

namespace turbogr::ops {
namespace {

using test::Apart;
using test::LazyBytes;
using test::Outputs;
using test::random_tensor;
using test::view_of;

constexpr std::size_t kGiB = std::size_t{1} << 30;

// Of both places the same bits, and not only zeros.
template <class Run>
void expect_same(const Run& run) {
  const Context ctx({.threads = 2, .workspace_bytes = std::size_t{1} << 26});
  const Outputs near = run(ctx, Apart::kNear), far = run(ctx, Apart::kFar);
  ASSERT_EQ(near.size(), far.size());
  for (std::size_t i = 0; i < near.size(); ++i) {
    EXPECT_TRUE(test::same_bits(near[i], far[i])) << "output " << i;
    EXPECT_GT(test::max_magnitude(near[i]), 0) << "output " << i;
  }
}

// In both formats of training. A test has ten matrices at most.
#define TGR_EXPECT_SAME(run, ...)                                           \
  if (!test::has_addresses(10 * 300 * sizeof(float) << 24)) {               \
    GTEST_SKIP() << "the system promises no addresses without memory here"; \
  }                                                                         \
  expect_same([](const Context& ctx, Apart apart) {                         \
    return run<float>(ctx, apart __VA_OPT__(, ) __VA_ARGS__);               \
  });                                                                       \
  expect_same([](const Context& ctx, Apart apart) {                         \
    return run<bf16>(ctx, apart __VA_OPT__(, ) __VA_ARGS__);                \
  })

TEST(LargeRows, AreAddedMultipliedAndDropped) { TGR_EXPECT_SAME(test::far_sums_and_products); }
TEST(LargeRows, AreNormalised) { TGR_EXPECT_SAME(test::far_norms); }
TEST(LargeRows, AreGated) { TGR_EXPECT_SAME(test::far_gates); }
TEST(LargeRows, GoThroughSmallLinearLayers) { TGR_EXPECT_SAME(test::far_linear, 16); }
TEST(LargeRows, GoThroughLinearLayers) { TGR_EXPECT_SAME(test::far_linear, 2048); }
TEST(LargeRows, AreInputOfARankingModel) { TGR_EXPECT_SAME(test::far_event_input); }
TEST(LargeRows, AreMadeOfActions) { TGR_EXPECT_SAME(test::far_actions); }
TEST(LargeRows, AreTargetsThatFindTheirWayBack) { TGR_EXPECT_SAME(test::far_targets); }
TEST(LargeRows, AttendToEachOther) { TGR_EXPECT_SAME(test::far_attention); }
TEST(LargeRows, AreSeenByTargets) { TGR_EXPECT_SAME(test::far_target_attention); }
TEST(LargeRows, AreMovedAndSummed) { TGR_EXPECT_SAME(test::far_moves); }

constexpr std::int64_t kTableRows = 4'400'000, kTableCols = 512;  // 2.25 G elements
const std::vector<std::int64_t> kTouched = {0, 1, 2'100'000, 4'194'303, 4'194'304, 4'399'999};

// A table and its state, of which a few rows are touched.
template <class W>
struct LargeTable {
  std::int64_t rows;
  LazyBytes weight, first, second;

  explicit LargeTable(std::int64_t num_rows)
      : rows(num_rows),
        weight(static_cast<std::size_t>(rows * kTableCols) * sizeof(W)),
        first(static_cast<std::size_t>(rows * kTableCols) * sizeof(float)),
        second(static_cast<std::size_t>(rows * kTableCols) * sizeof(float)) {}

  View<W, 2> weights() const { return {weight.as<W>(), {rows, kTableCols}}; }
  TableRows view(RowOptimiser optimiser) const {
    TableRows table;
    if constexpr (std::is_same_v<W, float>) {
      table.weight = weights();
    } else if constexpr (std::is_same_v<W, bf16>) {
      table.weight_bf16 = weights();
    } else {
      table.weight_f16 = weights();
    }
    table.first_moment = {first.as<float>(), {rows, kTableCols}};
    table.second_moment = {second.as<float>(),
                           {rows, optimiser == RowOptimiser::kAdaGrad ? 1 : kTableCols}};
    return table;
  }
};

// Rows `ids` get the same start, two steps, and are read again.
template <class W>
Tensor updated_rows(std::int64_t rows, const std::vector<std::int64_t>& ids,
                    RowOptimiser optimiser) {
  const Context ctx({.threads = 2, .workspace_bytes = std::size_t{1} << 24});
  const LargeTable<W> table(rows);
  const std::int64_t count = std::ssize(ids);
  const Tensor start = random_tensor<W>({count, kTableCols}, 1);
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < kTableCols; ++c) {
      table.weights()(ids[static_cast<std::size_t>(i)], c) = start.view<W, 2>()(i, c);
    }
  }
  const Tensor gradient = random_tensor<float>({count, kTableCols}, 2);
  TableRows view = table.view(optimiser);
  for (int step = 1; step <= 2; ++step) {
    update_rows(ctx, optimiser, view, view_of(ids), Rows<const float>(gradient.view<float, 2>()),
                {.rate = 0.1, .step = static_cast<double>(step)}, nullptr);
  }
  Tensor got(DType::kF32, {count, kTableCols});
  gather_rows<W, float>(ctx, Rows<const W>(table.weights()), view_of(ids),
                        Rows<float>(got.view<float, 2>()));
  return got;
}

// f16 and bf16 are rounded by the row's key, so they are compared to what the row's own place
// gives: a step so large that chance is in the last bits alone.
template <class W>
void expect_same_updates(double tolerance) {
  std::vector<std::int64_t> close(kTouched.size());
  std::iota(close.begin(), close.end(), std::int64_t{0});
  for (const RowOptimiser optimiser :
       {RowOptimiser::kAdamW, RowOptimiser::kAdaGrad, RowOptimiser::kSgd}) {
    const Tensor small = updated_rows<W>(std::ssize(close), close, optimiser);
    const Tensor large = updated_rows<W>(kTableRows, kTouched, optimiser);
    for (std::int64_t i = 0; i < small.size(); ++i) {
      ASSERT_NEAR(test::element(large, i), test::element(small, i), tolerance)
          << "optimiser " << static_cast<int>(optimiser) << ", element " << i;
    }
  }
}

TEST(LargeRows, OfTablesAreReadAndUpdated) {
  if (!test::has_addresses(30 * kGiB)) {
    GTEST_SKIP() << "the system promises no addresses without memory here";
  }
  expect_same_updates<float>(0);
  expect_same_updates<bf16>(0.1);
  expect_same_updates<f16>(0.01);
}

// Rows without a gap, as most are: as many reads as there are elements, so it takes seconds.
TEST(LargeRows, WithoutGapsGoThroughLinearLayers) {
  if (!test::has_addresses(10 * kGiB) || available_host_memory() < 2 * kGiB) {
    GTEST_SKIP() << "less than 2 GiB of memory, or 10 of addresses";
  }
  const Context ctx({.threads = 2, .workspace_bytes = std::size_t{1} << 26});
  struct Shape {
    std::int64_t inputs, outputs;
  };
  for (const Shape shape : {Shape{512, 16}, Shape{2048, 17}}) {
    const std::int64_t rows = (std::int64_t{1} << 31) / shape.inputs + 300;
    const LazyBytes bytes(static_cast<std::size_t>(rows * shape.inputs) * sizeof(float));
    const Rows<float> x(bytes.as<float>(), rows, shape.inputs, shape.inputs);
    const Tensor some = random_tensor<float>({2, shape.inputs}, 1);
    for (std::int64_t c = 0; c < shape.inputs; ++c) {
      x(rows / 2, c) = some.view<float, 2>()(0, c);
      x(rows - 1, c) = some.view<float, 2>()(1, c);
    }
    const Tensor w = random_tensor<float>({shape.inputs, shape.outputs}, 2);
    PackedWeight<float> weight(ctx, shape.inputs, shape.outputs);
    weight.pack(ctx, w.view<float, 2>());
    Tensor y(DType::kF32, {rows, shape.outputs}), alone(DType::kF32, {2, shape.outputs});
    linear<float>(ctx, x, weight, {}, y.view<float, 2>());
    linear<float>(ctx, Rows<const float>(some.view<float, 2>()), weight, {},
                  alone.view<float, 2>());
    for (std::int64_t c = 0; c < shape.outputs; ++c) {
      EXPECT_NEAR((y.view<float, 2>()(rows / 2, c)), (alone.view<float, 2>()(0, c)), 1e-3);
      EXPECT_NEAR((y.view<float, 2>()(rows - 1, c)), (alone.view<float, 2>()(1, c)), 1e-3);
      EXPECT_EQ((y.view<float, 2>()(rows - 2, c)), 0);
    }
  }
}

}  // namespace
}  // namespace turbogr::ops
