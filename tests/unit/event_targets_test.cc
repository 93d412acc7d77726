#include "turbogr/ops/rows/event_targets.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/event_case.h"
#include "tests/support/messages.h"

namespace turbogr::ops {
namespace {

using test::Block;
using test::element;
using test::message_of;

TEST(EventTargets, AreTheLastEventsOfTheirSequences) {
  const test::EventCase c = {.prefix = 2, .history = {3, 0, 1, 0}, .targets = {1, 2, 0, 0}};
  const test::EventBatch batch(c);
  const Context ctx({.threads = 2});
  std::vector<std::int64_t> tokens(3), events(3), times(3), starts(5);
  std::vector<std::uint64_t> keys(3), row_keys;
  const EventTargets targets = {test::view_of(tokens), test::view_of(events), test::view_of(times),
                                test::view_of(keys), test::view_of(starts)};
  find_targets(ctx, batch.view(), {}, targets);
  EXPECT_EQ(keys, (std::vector<std::uint64_t>{5, 8, 9}));
  EXPECT_EQ(starts, (std::vector<std::int64_t>{0, 1, 3, 3, 3}));
  for (std::int64_t i = 0; i < c.tokens(); ++i) row_keys.push_back(100u + static_cast<unsigned>(i));
  find_targets(ctx, batch.view(), {row_keys.data(), {c.tokens()}}, targets);
  EXPECT_EQ(keys, (std::vector<std::uint64_t>{105, 108, 109}));
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{5, 8, 9}));
  EXPECT_EQ(events, (std::vector<std::int64_t>{3, 4, 5}));
  EXPECT_EQ(times, (std::vector<std::int64_t>{batch.times[3], batch.times[4], batch.times[5]}));
  std::vector<std::int64_t> few(2);
  EXPECT_EQ(message_of([&] {
              EventTargets wrong = targets;
              wrong.tokens = test::view_of(few);
              find_targets(ctx, batch.view(), {}, wrong);
            }),
            "find_targets: tokens has 2 elements; wanted 3");
}

template <class T>
class EventTargetRowsOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(EventTargetRowsOf, Formats);

TYPED_TEST(EventTargetRowsOf, FindTheirWayBack) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  const Tensor rows = test::random_tensor<T>({2, 3}, 1), start = test::random_tensor<T>({5, 3}, 2);
  const std::vector<std::int64_t> places = {4, 1};
  const Block<T> given(rows);
  Block<T> spread(5, 3), added(start);
  spread_rows<T>(ctx, given.rows(), test::view_of(places), spread.rows());
  add_rows_at<T>(ctx, given.rows(), test::view_of(places), added.rows());
  const Tensor spreads = spread.values(), sums = added.values();
  for (std::int64_t r = 0; r < 5; ++r) {
    for (std::int64_t c = 0; c < 3; ++c) {
      const double here = r == 4 ? element(rows, c) : r == 1 ? element(rows, 3 + c) : 0.0;
      EXPECT_EQ(element(spreads, 3 * r + c), here);
      const auto sum = static_cast<Accum<T>>(element(start, 3 * r + c) + here);
      EXPECT_EQ(element(sums, 3 * r + c), static_cast<double>(convert<Accum<T>>(convert<T>(sum))));
    }
  }
}

TEST(EventTargetRows, SayWhatIsWrong) {
  const Context ctx({.threads = 1});
  Tensor rows(DType::kF32, {2, 3}), out(DType::kF32, {4, 3});
  const std::vector<std::int64_t> places = {1, 4}, one = {1};
  const auto call = [&](const std::vector<std::int64_t>& at) {
    return message_of([&] {
      add_rows_at<float>(ctx, rows.view<float, 2>(), test::view_of(at), out.view<float, 2>());
    });
  };
  EXPECT_EQ(
      call(places),
      "add_rows_at: place 4 of row 1 for 4 rows of out; it must be at least 0 and below that");
  EXPECT_EQ(call(one), "add_rows_at: places has 1 elements; wanted 2");
  EXPECT_NE(message_of([&] {
              spread_rows<float>(ctx, rows.view<float, 2>(), test::view_of(places),
                                 out.view<float, 2>());
            }).find("spread_rows: place 4"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::ops
