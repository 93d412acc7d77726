#include "turbogr/embedding/row_prefetch.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/data.h"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::embedding {
namespace {

constexpr std::int64_t kItems = 100;
constexpr std::int64_t kWidth = 5;

void touch(const Context& ctx, const std::vector<std::int64_t>& ids, TouchedRows& touched) {
  touched.clear();
  touched.mark(ctx, {ids.data(), {static_cast<std::int64_t>(ids.size())}});
  touched.number(ctx);
}

RowCache cache_of(const Context& ctx, const std::vector<std::int64_t>& rows) {
  return {ctx, kItems, kWidth, SparseOptimiser::kSgd, rows};
}

// Segments of two rows: a step's rows go round them several times.
template <class T>
void check_fetch() {
  const Context ctx({.threads = 2});
  const Tensor table = test::random_tensor<float>({kItems, kWidth}, 1);
  RowPrefetch<T> prefetch(ctx, kItems, kWidth, 2 * kWidth * static_cast<std::int64_t>(sizeof(T)));
  TouchedRows previous(kItems), next(kItems);
  touch(ctx, {3, 40, 41, 99}, previous);
  touch(ctx, {0, 3, 7, 8, 9, 41, 50, 98}, next);
  Tensor rows(dtype_of<T>(), {8, kWidth});
  const RowCache none = cache_of(ctx, {});
  prefetch.fetch(ctx, table.view<float, 2>(), none, &previous, next, rows.view<T, 2>());
  prefetch.arrive(ctx);
  EXPECT_EQ(prefetch.rows_sent(), 6);
  for (std::int64_t i = 0; i < 8; ++i) {
    const bool comes = i != 1 && i != 5;  // 3 and 41 are the last update's to bring
    for (std::int64_t c = 0; c < kWidth; ++c) {
      const auto want = comes ? convert<T>(table.view<float, 2>()(next.ids()(i), c)) : T(0.0f);
      EXPECT_EQ(convert<float>(rows.view<T, 2>()(i, c)), convert<float>(want)) << i;
    }
  }
  const std::vector<std::int64_t> items = {41, 0, 41, 98};  // what the forward pass reads
  const View<const std::int64_t, 1> inputs = {items.data(), {4}};
  std::vector<std::int32_t> places(4), which(4);
  const auto divide = [&](const RowCache& cache) {
    return prefetch.divide(ctx, cache, previous, next, {&inputs, 1}, {places.data(), {4}},
                           {which.data(), {4}});
  };
  const auto all = divide(none);
  EXPECT_EQ(all.soon, 1);
  EXPECT_EQ(all.all, 4);
  EXPECT_EQ(places, (std::vector<std::int32_t>{1, -1, 5, -1}));
  EXPECT_EQ(which, (std::vector<std::int32_t>{2, 0, 1, 3}));
  const auto uncached = divide(cache_of(ctx, {40, 41}));
  EXPECT_EQ(uncached.soon, 0);
  EXPECT_EQ(uncached.all, 2);
  EXPECT_EQ(which[0], 0);
  EXPECT_EQ(which[1], 3);
}

TEST(RowPrefetch, LeavesTheRowsThatTheDeviceHasCopiesOf) {
  const Context ctx({.threads = 1});
  const Tensor table = test::random_tensor<float>({kItems, kWidth}, 1);
  RowPrefetch<float> prefetch(ctx, kItems, kWidth);
  TouchedRows next(kItems);
  touch(ctx, {5, 6, 70}, next);
  Tensor rows(DType::kF32, {3, kWidth});
  prefetch.fetch(ctx, table.view<float, 2>(), cache_of(ctx, {6, 70}), nullptr, next,
                 rows.view<float, 2>());
  EXPECT_EQ(prefetch.rows_sent(), 1);
  EXPECT_EQ((rows.view<float, 2>()(0, 4)), (table.view<float, 2>()(5, 4)));
  EXPECT_EQ((rows.view<float, 2>()(1, 4)), 0.0f);
}

TEST(RowPrefetch, BringsWhatTheLastStepDidNotTouch) {
  check_fetch<float>();
  check_fetch<bf16>();
}

TEST(RowPrefetch, BringsAllRowsWhereThereWasNoStepBefore) {
  const Context ctx({.threads = 1});
  const Tensor table = test::random_tensor<float>({kItems, kWidth}, 1);
  RowPrefetch<float> prefetch(ctx, kItems, kWidth);
  TouchedRows next(kItems);
  touch(ctx, {5, 6}, next);
  Tensor rows(DType::kF32, {2, kWidth});
  prefetch.fetch(ctx, table.view<float, 2>(), cache_of(ctx, {}), nullptr, next,
                 rows.view<float, 2>());
  EXPECT_EQ(prefetch.rows_sent(), 2);
  EXPECT_EQ((rows.view<float, 2>()(1, 4)), (table.view<float, 2>()(6, 4)));
  EXPECT_EQ(next.find(6), 1);
  EXPECT_EQ(next.find(7), -1);
}

}  // namespace
}  // namespace turbogr::embedding
