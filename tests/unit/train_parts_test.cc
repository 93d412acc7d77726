// The small parts of a training step: negatives, touched rows, ranking metrics.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "tests/support/messages.h"
#include "turbogr/train/evaluate.h"
#include "turbogr/train/negative_sampler.h"
#include "turbogr/train/touched_rows.h"

namespace turbogr::train {
namespace {

std::vector<std::int64_t> draw(int threads, std::uint64_t step, std::int64_t catalogue,
                               const std::vector<std::uint64_t>& keys, std::int64_t count) {
  const Context ctx({.threads = threads});
  const auto tokens = static_cast<std::int64_t>(keys.size());
  std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens * count), -1);
  draw_own_negatives(ctx, {.seed = 5, .step = step}, catalogue, {keys.data(), {tokens}},
                     {ids.data(), {tokens, count}});
  return ids;
}

TEST(Negatives, AreUniformInRangeAndDependOnPlaceAlone) {
  std::vector<std::uint64_t> keys(2000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i << 24;
  const std::vector<std::int64_t> ids = draw(1, 3, 10, keys, 7);
  EXPECT_EQ(ids, draw(3, 3, 10, keys, 7));
  EXPECT_NE(ids, draw(1, 4, 10, keys, 7));
  std::vector<int> counts(10);
  for (const std::int64_t id : ids) ++counts.at(static_cast<std::size_t>(id));
  for (const int count : counts) EXPECT_NEAR(count, 1400, 150);
  // A token keeps its draws wherever it stands in the batch.
  const std::vector<std::int64_t> alone = draw(1, 3, 10, {keys[42]}, 7);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), ids.begin() + 42 * 7));
}

TEST(Negatives, ASharedSetChangesWithTheStep) {
  std::vector<std::int64_t> first(9), again(9), other(9);
  draw_shared_negatives({.seed = 1, .step = 0}, 1000, {first.data(), {9}});
  draw_shared_negatives({.seed = 1, .step = 0}, 1000, {again.data(), {9}});
  draw_shared_negatives({.seed = 1, .step = 1}, 1000, {other.data(), {9}});
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_NE(test::message_of([&] {
              draw_shared_negatives({}, 0, {first.data(), {9}});
            }).find("0 items"),
            std::string::npos);
}

TEST(TouchedRows, AreDistinctAscendingAndForgottenWhenCleared) {
  const Context ctx({.threads = 2});
  TouchedRows touched(8);
  const std::vector<std::int64_t> a = {5, 2, 5}, b = {7, 2};
  touched.mark(ctx, {a.data(), {3}});
  touched.mark(ctx, {b.data(), {2}});
  touched.number(ctx);
  ASSERT_EQ(touched.ids().shape[0], 3);
  EXPECT_EQ(touched.ids()(0), 2);
  EXPECT_EQ(touched.ids()(1), 5);
  EXPECT_EQ(touched.ids()(2), 7);
  std::vector<std::int32_t> places(3);
  touched.places_of<std::int32_t>(ctx, {a.data(), {3}}, {places.data(), {3}});
  EXPECT_EQ(places, (std::vector<std::int32_t>{1, 0, 1}));
  touched.clear();
  touched.mark(ctx, {b.data(), {1}});
  touched.number(ctx);
  EXPECT_EQ(touched.ids().shape[0], 1);
  const std::vector<std::int64_t> bad = {1, 8};
  EXPECT_NE(test::message_of([&] {
              touched.mark(ctx, {bad.data(), {2}});
            }).find("item id 8 at position 1 of the step; the item table has 8 rows"),
            std::string::npos);
}

TEST(RankingMetrics, FollowTheirDefinitions) {
  RankingMetrics metrics({1, 10});
  for (const std::int64_t rank : {1, 3, 11}) metrics.add(rank);
  const auto figures = metrics.figures();
  ASSERT_EQ(figures.size(), 5u);
  EXPECT_EQ(figures[0].first, "hr@1");
  EXPECT_NEAR(figures[0].second, 1.0 / 3, 1e-12);
  EXPECT_NEAR(figures[2].second, 2.0 / 3, 1e-12);
  EXPECT_NEAR(figures[3].second, (1 + 1 / std::log2(4.0)) / 3, 1e-12);
  EXPECT_EQ(figures[4].first, "mrr");
  EXPECT_NEAR(figures[4].second, (1 + 1.0 / 3 + 1.0 / 11) / 3, 1e-12);
}

}  // namespace
}  // namespace turbogr::train
