// The small parts of a training step: touched rows, ranking metrics.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/messages.h"
#include "turbogr/train/evaluate.h"
#include "turbogr/train/touched_rows.h"

namespace turbogr::train {
namespace {

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

TEST(TouchedRows, NumberFirstOnesFirst) {
  const Context ctx({.threads = 2});
  TouchedRows touched(8);
  const std::vector<std::int64_t> a = {5, 2, 7}, first = {6, 2};
  for (const bool before : {false, true}) {  // whichever mark comes first
    touched.clear();
    if (before) touched.mark_first(ctx, {first.data(), {2}});
    touched.mark(ctx, {a.data(), {3}});
    if (!before) touched.mark_first(ctx, {first.data(), {2}});
    touched.number(ctx);
    EXPECT_EQ(touched.num_first(), 2);
    const View<const std::int64_t, 1> ids = touched.ids();
    EXPECT_EQ(std::vector<std::int64_t>(ids.data, ids.data + ids.shape[0]),
              (std::vector<std::int64_t>{2, 6, 5, 7}));
    std::vector<std::int32_t> places(3);
    touched.places_of<std::int32_t>(ctx, {a.data(), {3}}, {places.data(), {3}});
    EXPECT_EQ(places, (std::vector<std::int32_t>{2, 0, 3}));
  }
  touched.clear();
  touched.mark(ctx, {a.data(), {3}});
  touched.number(ctx);
  EXPECT_EQ(touched.num_first(), 0);
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
