#include "turbogr/embedding/row_cache.h"

#include <gtest/gtest.h>

#include <vector>

#include "turbogr/core/check.h"

namespace turbogr::embedding {
namespace {

using Ids = std::vector<std::int64_t>;

TEST(RowCache, TakesTheItemsMetMostOften) {
  const Ids counts = {4, 0, 9, 4, 1, 4};
  EXPECT_EQ(most_used_rows(counts, 0), Ids{});
  EXPECT_EQ(most_used_rows(counts, 1), Ids{2});
  EXPECT_EQ(most_used_rows(counts, 3), (Ids{0, 2, 3}));
  EXPECT_EQ(most_used_rows(counts, 100), (Ids{0, 2, 3, 4, 5}));
  EXPECT_EQ(most_used_rows({}, 5), Ids{});
}

void fill(Tensor& tensor, float first) {
  auto* values = reinterpret_cast<float*>(tensor.data());
  for (std::int64_t i = 0; i < tensor.size(); ++i) values[i] = first + static_cast<float>(i);
}

float number(const Tensor& tensor, std::int64_t at) {
  return reinterpret_cast<const float*>(tensor.data())[at];
}

TEST(RowCache, BringsRowsAndTheirStateThereAndBack) {
  constexpr std::int64_t kRows = 7, kWidth = 3;
  const Context ctx({.threads = 1});
  for (const auto optimiser :
       {SparseOptimiser::kAdamW, SparseOptimiser::kAdaGrad, SparseOptimiser::kSgd}) {
    ItemTable table(kRows, kWidth, optimiser);
    fill(table.weight_tensor(), 100);
    if (table.has_first_moment()) fill(table.first_moment(), 200);
    if (table.has_second_moment()) fill(table.second_moment(), 300);
    RowCache cache(ctx, kRows, kWidth, optimiser, Ids{1, 5});
    EXPECT_EQ(cache.slot(5), 1);
    EXPECT_EQ(cache.slot(4), -1);
    cache.load(ctx, table);
    const std::int64_t state_width = optimiser == SparseOptimiser::kAdamW ? kWidth : 1;
    EXPECT_EQ(number(cache.copies().weight_tensor(), kWidth), 100 + 5 * kWidth);
    if (table.has_second_moment()) {
      EXPECT_EQ(number(cache.copies().second_moment(), state_width),
                300 + static_cast<float>(5 * state_width));
    }

    fill(cache.copies().weight_tensor(), 1);
    if (table.has_first_moment()) fill(cache.copies().first_moment(), 20);
    if (table.has_second_moment()) fill(cache.copies().second_moment(), 30);
    cache.write_back(ctx, table);
    EXPECT_EQ(number(table.weight_tensor(), 1 * kWidth), 1);
    EXPECT_EQ(number(table.weight_tensor(), 5 * kWidth + 2), 1 + kWidth + 2);
    EXPECT_EQ(number(table.weight_tensor(), 4 * kWidth), 100 + 4 * kWidth);
    if (table.has_first_moment()) {
      EXPECT_EQ(number(table.first_moment(), 5 * kWidth), 20 + kWidth);
    }
    if (table.has_second_moment()) {
      EXPECT_EQ(number(table.second_moment(), 5 * state_width),
                30 + static_cast<float>(state_width));
      EXPECT_EQ(number(table.second_moment(), 0), 300);
    }
  }
}

TEST(RowCache, RefusesRowsThatTheTableDoesNotHave) {
  const Context ctx({.threads = 1});
  EXPECT_THROW(RowCache(ctx, 5, 2, SparseOptimiser::kSgd, Ids{5}), Error);
}

}  // namespace
}  // namespace turbogr::embedding
