#include "turbogr/ops/rows/event_input.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/event_case.h"
#include "tests/support/messages.h"
#include "tests/support/simd_levels.h"

namespace turbogr::ops {
namespace {

using test::EventBatch;
using test::EventCase;
using test::EventInputs;
using test::EventResults;
using test::matches;
using test::message_of;

template <class T>
class EventInputOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(EventInputOf, Formats);

TYPED_TEST(EventInputOf, MatchesTheDefinitionAtEveryShapeAndInstructionSet) {
  using T = TypeParam;
  const DropoutOptions dropout = {.rate = 0.25, .seed = 6, .site = 3};
  const std::vector<EventCase> cases = {
      {.prefix = 2},  // no sequences
      {.prefix = 0, .history = {0, 0}, .targets = {0, 1}},
      {.prefix = 3, .history = {0, 4, 0}, .targets = {0, 0, 2}, .dropout = dropout},
      {.prefix = 1, .history = {30, 1, 5}, .targets = {1, 3, 2}, .cols = 45, .dropout = dropout},
      {.prefix = 8, .history = {2, 70}, .targets = {1, 1}, .cols = 129, .positions = 9},
      {.prefix = 0, .history = {3}, .targets = {4}, .cols = 1, .positions = 1, .buckets = 0},
      {.prefix = 1,
       .history = {30, 1, 5},
       .targets = {1, 3, 2},
       .cols = 45,
       .buckets = 3,
       .kind = TimeBuckets::kLog},
  };
  for (const EventCase& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.tokens() << " tokens of " << c.cols);
    const EventBatch batch(c);
    const EventInputs<T> in(c);
    const EventResults reference = test::plain_event_input<double>(c, batch, in.widened(c));
    const EventResults simple = test::plain_event_input<T>(c, batch, in);
    for (const SimdLevel simd : test::simd_levels()) {
      SCOPED_TRACE(name_of(simd));
      Context ctx({.threads = 2, .simd = simd});
      const EventResults got = test::run_event_input<T>(ctx, c, batch, in);
      EXPECT_TRUE(matches(got.x, simple.x, reference.x));
      EXPECT_TRUE(matches(got.dprefix, simple.dprefix, reference.dprefix));
      EXPECT_TRUE(matches(got.devents, simple.devents, reference.devents));
      EXPECT_TRUE(matches(got.dposition, simple.dposition, reference.dposition));
      EXPECT_TRUE(matches(got.dtime, simple.dtime, reference.dtime));
    }
  }
}

TEST(EventInput, AnyNumberOfThreadsGivesTheSameBits) {
  const EventCase c = {.prefix = 2, .history = {90, 3, 41}, .targets = {4, 1, 9}, .cols = 70};
  const EventBatch batch(c);
  const EventInputs<float> in(c);
  Context one({.threads = 1});
  const EventResults wanted = test::run_event_input<float>(one, c, batch, in);
  for (const int threads : {2, 3}) {
    Context ctx({.threads = threads});
    const EventResults got = test::run_event_input<float>(ctx, c, batch, in);
    EXPECT_TRUE(test::same_bits(got.x, wanted.x));
    EXPECT_TRUE(test::same_bits(got.devents, wanted.devents));
    EXPECT_TRUE(test::same_bits(got.dposition, wanted.dposition));
    EXPECT_TRUE(test::same_bits(got.dtime, wanted.dtime));
  }
}

TEST(SquareRootBucket, EdgesAreWhereTheySay) {
  EXPECT_EQ(square_root_bucket(59, 0, 2048), 0);
  EXPECT_EQ(square_root_bucket(60, 0, 2048), 1);
  EXPECT_EQ(square_root_bucket(0, 60, 2048), 0);
  EXPECT_EQ(square_root_bucket(-5, -65, 2048), 1);
  for (std::int64_t k = 1; k <= 4000; ++k) {
    EXPECT_EQ(square_root_bucket(60 * k * k - 1, 0, 5000), k - 1);
    EXPECT_EQ(square_root_bucket(60 * k * k, 0, 5000), k);
  }
  const std::int64_t late = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(square_root_bucket(late, 0, 2048), 2048);
  EXPECT_EQ(square_root_bucket(late, -late, 2048), 2048);
  EXPECT_EQ(square_root_bucket(-late, late, 2048), 0);
  EXPECT_EQ(square_root_bucket(100, 0, 0), 0);
}

TEST(LogBucket, EdgesAreWhereTheySay) {
  EXPECT_EQ(log_bucket(60, 0, 2048), 0);
  EXPECT_EQ(log_bucket(0, 600, 2048), 0);
  EXPECT_EQ(log_bucket(-5, -205, 2048), 1);
  for (std::int64_t k = 1; k < 24; ++k) {  // 18,000 years
    const auto below = static_cast<std::int64_t>(60 * std::exp(static_cast<long double>(k)));
    EXPECT_EQ(log_bucket(below, 0, 5000), k - 1);
    EXPECT_EQ(log_bucket(below + 1, 0, 5000), k);
  }
  const std::int64_t late = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(log_bucket(late, 0, 2048), 39);
  EXPECT_EQ(log_bucket(late, -late, 30), 30);
  EXPECT_EQ(log_bucket(-late, late, 2048), 0);
  EXPECT_EQ(log_bucket(1000, 0, 0), 0);
}

TEST(EventInput, SaysWhatIsWrong) {
  const EventCase c = {.prefix = 2, .history = {3}, .targets = {1}, .cols = 4};
  const EventBatch batch(c);
  EventInputs<float> in(c);
  const Context ctx({.threads = 1, .workspace_bytes = 1 << 16});
  Tensor x(DType::kF32, {6, 4});
  const auto call = [&](const EventSequences& sequences, const DropoutOptions& dropout = {}) {
    return message_of([&] {
      event_input<float>(ctx, sequences, {in.prefix.view<float, 2>(), in.events.view<float, 2>()},
                         {in.position.view<float, 2>(), in.time.view<float, 2>()},
                         {.dropout = dropout}, x.view<float, 2>());
    });
  };
  EXPECT_EQ(call(batch.view()), "");
  EXPECT_EQ(call(batch.view(), {.rate = 1}),
            "event_input: dropout rate is 1; it must be at least 0 and below 1");
  EventSequences wrong = batch.view();
  const std::vector<std::int64_t> many = {5}, two = {1, 1};
  wrong.num_targets = test::view_of(many);
  EXPECT_EQ(call(wrong), "event_input: sequence 0 has 6 tokens for 2 of the prefix and 5 targets");
  wrong.num_targets = test::view_of(two);
  EXPECT_EQ(call(wrong), "event_input: num_targets has 2 elements; wanted 1");
  wrong = batch.view();
  wrong.num_prefix = -1;
  EXPECT_EQ(call(wrong), "event_input: -1 prefix tokens a sequence; give at least 0");
  in.position = Tensor(DType::kF32, {2, 4});
  EXPECT_EQ(call(batch.view()),
            "event_input: a position table of 2 rows for 2 prefix tokens; the targets' place comes "
            "after those");
  in.position = Tensor(DType::kF32, {9, 4});
  in.time = Tensor(DType::kF32, {0, 4});
  EXPECT_EQ(call(batch.view()), "event_input: a time table without rows; give at least 1");
  in.prefix = Tensor(DType::kF32, {3, 4});
  EXPECT_EQ(call(batch.view()), "event_input: prefix is [3, 4]; wanted [2, 4]");
}

}  // namespace
}  // namespace turbogr::ops
