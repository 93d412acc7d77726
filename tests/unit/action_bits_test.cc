#include "turbogr/ops/rows/action_bits.h"

#include <gtest/gtest.h>

#include "tests/support/event_case.h"
#include "tests/support/messages.h"

namespace turbogr::ops {
namespace {

using test::ActionResults;
using test::EventBatch;
using test::EventCase;
using test::matches;
using test::message_of;

// Event by event, from the definition.
template <class T>
ActionResults plain(const EventCase& c, const EventBatch& batch, const Tensor& table,
                    const Tensor& target, const Tensor& drows) {
  using A = Accum<T>;
  const std::int64_t bits = table.shape()[0], width = table.shape()[1];
  ActionResults out = {Tensor(dtype_of<T>(), {c.events(), bits * width}),
                       test::event_start<A>(table.shape()), test::event_start<A>(target.shape())};
  std::int64_t event = 0;
  for (std::size_t b = 0; b < c.history.size(); ++b) {
    for (std::int64_t j = 0; j < c.history[b] + c.targets[b]; ++j, ++event) {
      for (std::int64_t bit = 0; bit < bits; ++bit) {
        for (std::int64_t k = 0; k < width; ++k) {
          const std::int64_t column = bit * width + k;
          const A d = convert<A>(drows.view<T, 2>()(event, column));
          A value = 0;
          if (j >= c.history[b]) {
            value = target.view<A, 1>()(column);
            out.dtarget.view<A, 1>()(column) += d;
          } else if ((batch.masks[static_cast<std::size_t>(event)] >> bit) % 2 == 1) {
            value = table.view<A, 2>()(bit, k);
            out.dtable.view<A, 2>()(bit, k) += d;
          }
          out.rows.view<T, 2>()(event, column) = convert<T>(value);
        }
      }
    }
  }
  return out;
}

template <class T>
class ActionBitsOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(ActionBitsOf, Formats);

TYPED_TEST(ActionBitsOf, MatchesTheDefinitionForAnyNumberOfThreads) {
  using T = TypeParam;
  using A = Accum<T>;
  const std::vector<EventCase> cases = {{.prefix = 2},
                                        {.prefix = 1, .history = {0, 3, 0}, .targets = {0, 2, 1}},
                                        {.history = {40, 2}, .targets = {1, 9}}};
  for (const EventCase& c : cases) {
    for (const std::int64_t bits : {1, 5, 32}) {
      const EventBatch batch(c);
      const Tensor table = test::random_tensor<A>({bits, 3}, 1);
      const Tensor target = test::random_tensor<A>({bits * 3}, 2);
      const Tensor drows = test::random_tensor<T>({c.events(), bits * 3}, 3);
      const ActionResults simple = plain<T>(c, batch, table, target, drows);
      for (const int threads : {1, 3}) {
        Context ctx({.threads = threads});
        const ActionResults got = test::run_action_bits<T>(ctx, c, batch, table, target, drows);
        EXPECT_TRUE(test::same_bits(got.rows, simple.rows));
        EXPECT_TRUE(test::same_bits(got.dtable, simple.dtable));
        EXPECT_TRUE(test::same_bits(got.dtarget, simple.dtarget));
      }
    }
  }
}

TEST(ActionBits, ATargetsOwnActionsAreNeverRead) {
  const EventCase c = {.prefix = 1, .history = {2, 0}, .targets = {1, 2}};
  const Tensor table = test::random_tensor<float>({4, 8}, 1);
  const Tensor target = test::random_tensor<float>({32}, 2);
  const Tensor drows = test::random_tensor<float>({5, 32}, 3);
  Context ctx({.threads = 1});
  EventBatch batch(c);
  const ActionResults before = test::run_action_bits<float>(ctx, c, batch, table, target, drows);
  for (const std::size_t event : {2u, 3u, 4u}) batch.masks[event] = ~batch.masks[event];
  const ActionResults after = test::run_action_bits<float>(ctx, c, batch, table, target, drows);
  EXPECT_TRUE(test::same_bits(before.rows, after.rows));
  EXPECT_TRUE(test::same_bits(before.dtable, after.dtable));
}

TEST(ActionBits, SaysWhatIsWrong) {
  const EventCase c = {.history = {2}, .targets = {1}};
  const EventBatch batch(c);
  const Context ctx({.threads = 1});
  Tensor rows(DType::kF32, {3, 8});
  const auto call = [&](const Tensor& table, const Tensor& target, std::int64_t masks) {
    return message_of([&] {
      action_bits<float>(ctx, batch.view(), {table.view<float, 2>(), target.view<float, 1>()},
                         {batch.masks.data(), {masks}}, rows.view<float, 2>());
    });
  };
  const Tensor table(DType::kF32, {2, 4}), target(DType::kF32, {8});
  EXPECT_EQ(call(table, target, 3), "");
  EXPECT_EQ(call(table, target, 2), "action_bits: masks has 2 elements; wanted 3");
  EXPECT_EQ(call(table, Tensor(DType::kF32, {7}), 3),
            "action_bits: target has 7 elements; wanted 8");
  EXPECT_EQ(call(Tensor(DType::kF32, {33, 4}), target, 3),
            "action_bits: a table of 33 rows; a mask has a bit for 1 to 32");
  EXPECT_EQ(call(Tensor(DType::kF32, {1, 4}), Tensor(DType::kF32, {4}), 3),
            "action_bits: rows is [3, 8]; wanted [3, 4]");
}

}  // namespace
}  // namespace turbogr::ops
