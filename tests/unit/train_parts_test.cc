// The small parts of a training step: touched rows, ranking metrics.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "tests/support/messages.h"
#include "turbogr/core/philox.h"
#include "turbogr/embedding/touched_rows.h"
#include "turbogr/eval/evaluate.h"
#include "turbogr/train/dense_tensors.h"

namespace turbogr::train {
namespace {

using embedding::TouchedRows;

TEST(LargestTensors, ANumberThatIsNoneIsNotForgottenForALaterOne) {
  const Context ctx({.threads = 1});
  model::ParameterSet<float> parameters;
  const int large = parameters.add({.name = "large", .shape = {3}});
  const int broken = parameters.add({.name = "broken", .shape = {3}});
  parameters.initialise(ctx, 1);
  const auto values = [&](int i) { return reinterpret_cast<float*>(parameters.value(i).data()); };
  std::fill_n(values(large), 3, 7.0f);
  values(broken)[0] = NAN;
  values(broken)[2] = 1.0f;
  const std::vector<LargestTensor> all = largest_tensors(ctx, parameters);
  EXPECT_EQ(all[0].name, "broken");
  EXPECT_TRUE(std::isnan(all[0].largest));
  EXPECT_EQ(all[1].name, "large");
  EXPECT_EQ(all[1].largest, 7);
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

TEST(TouchedRows, MayBeAllOfThem) {
  const Context ctx({.threads = 2});
  for (const std::int64_t rows : {1, 63, 64, 65, 4096, 4097, 70'000}) {
    TouchedRows touched(rows);
    for (const bool some_first : {true, false}) {
      const std::vector<std::int64_t> last = {rows - 1};
      touched.clear();
      if (some_first) touched.mark_first(ctx, {last.data(), {1}});
      touched.mark_all();
      touched.number(ctx);
      ASSERT_EQ(touched.ids().shape[0], rows);
      ASSERT_EQ(touched.num_first(), some_first ? 1 : 0);
      for (std::int64_t place = 0; place < rows; ++place) {
        const std::int64_t id = !some_first ? place : place == 0 ? rows - 1 : place - 1;
        ASSERT_EQ(touched.ids()(place), id);
        ASSERT_EQ(touched.find(id), place);
      }
    }
    touched.clear();
    touched.number(ctx);
    EXPECT_EQ(touched.ids().shape[0], 0);
  }
}

TEST(TouchedRows, AreThoseOfASetInAnyTable) {
  const Context ctx({.threads = 2});
  for (const std::int64_t rows : {1, 63, 64, 65, 4096, 4097, 1'000'000}) {
    TouchedRows touched(rows, 60'000);
    for (std::uint64_t round = 0; round < 3; ++round) {  // and forgets the rounds before
      PhiloxStream random(round + 1);
      std::vector<std::int64_t> ids(round == 1 ? 5 : 30'000), first(round == 2 ? 0 : 300);
      for (std::vector<std::int64_t>* list : {&ids, &first}) {
        for (std::int64_t& id : *list) {
          id = static_cast<std::int64_t>(random.uniform() * static_cast<double>(rows));
        }
      }
      touched.clear();
      touched.mark(ctx, {ids.data(), {std::ssize(ids)}});
      touched.mark_first(ctx, {first.data(), {std::ssize(first)}});
      touched.number(ctx);
      const std::set<std::int64_t> before(first.begin(), first.end());
      std::vector<std::int64_t> wanted(before.begin(), before.end());
      for (const std::int64_t id : std::set<std::int64_t>(ids.begin(), ids.end())) {
        if (before.count(id) == 0) wanted.push_back(id);
      }
      ASSERT_EQ(touched.num_first(), std::ssize(before));
      ASSERT_EQ(touched.ids().shape[0], std::ssize(wanted));
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_EQ(touched.ids()(static_cast<std::int64_t>(i)), wanted[i]) << rows;
        ASSERT_EQ(touched.find(wanted[i]), static_cast<std::int32_t>(i)) << rows;
      }
      const std::set<std::int64_t> all(wanted.begin(), wanted.end());
      for (std::int64_t id = 0; id < std::min<std::int64_t>(rows, 5000); ++id) {
        if (all.count(id) == 0) {
          ASSERT_EQ(touched.find(id), -1) << rows;
        }
      }
    }
  }
}

TEST(RankingMetrics, FollowTheirDefinitions) {
  eval::RankingMetrics metrics({1, 10});
  for (const std::int64_t rank : {1, 3, 11}) metrics.add(rank);
  const auto figures = metrics.figures();
  ASSERT_EQ(figures.size(), 5u);
  EXPECT_EQ(figures[0].first, "hr@1");
  EXPECT_NEAR(figures[0].second, 1.0 / 3, 1e-12);
  EXPECT_NEAR(figures[2].second, 2.0 / 3, 1e-12);
  EXPECT_NEAR(figures[3].second, (1 + 1 / std::log2(4.0)) / 3, 1e-11);
  EXPECT_EQ(figures[4].first, "mrr");
  EXPECT_NEAR(figures[4].second, (1 + 1.0 / 3 + 1.0 / 11) / 3, 1e-11);
}

// A run evaluates in other batches than `eval` does, and on other ranks.
TEST(RankingMetrics, AreTheSameInAnyOrderOfUsers) {
  eval::RankingMetrics forward({10}), backward({10});
  for (std::int64_t rank = 1; rank <= 1000; ++rank) forward.add(rank);
  for (std::int64_t rank = 1000; rank >= 1; --rank) backward.add(rank);
  EXPECT_EQ(forward.figures(), backward.figures());
}

}  // namespace
}  // namespace turbogr::train
