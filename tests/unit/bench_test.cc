// What `turbogr bench` stands on: lengths as asked for, and a baseline and operators that agree.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "bench/lengths.h"
#include "bench/op_case.h"
#include "bench/timing.h"
#include "tests/support/messages.h"

namespace turbogr::bench {
namespace {

using test::message_of;

TEST(Lengths, SumToTheTokensAskedFor) {
  for (const char* text : {"kuairand", "uniform:100", "lognormal:30:90"}) {
    for (const std::int64_t tokens : {1, 99, 5000}) {
      const auto lengths = make_lengths(text, tokens, 200, 3);
      EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), tokens) << text;
      EXPECT_GE(*std::min_element(lengths.begin(), lengths.end()), 1) << text;
      EXPECT_LE(*std::max_element(lengths.begin(), lengths.end()), 200) << text;
    }
  }
}

TEST(Lengths, HaveTheShapeNamed) {
  EXPECT_EQ(make_lengths("uniform:40", 100, 2048, 1), (std::vector<std::int64_t>{40, 40, 20}));
  EXPECT_EQ(make_lengths("uniform:40", 100, 30, 1), (std::vector<std::int64_t>{30, 30, 30, 10}));

  const auto drawn = make_lengths("lognormal:300:2048", 3'000'000, 4096, 1);
  const double mean = 3e6 / static_cast<double>(drawn.size());
  EXPECT_NEAR(mean, 293, 10);  // 300 less what the cap takes away
  EXPECT_EQ(*std::max_element(drawn.begin(), drawn.end()), 2048);

  // Nine users in ten have more than 2048 events.
  const auto users = make_lengths("kuairand", 2'000'000, 2048, 1);
  const auto full = std::count(users.begin(), users.end(), 2048);
  EXPECT_NEAR(static_cast<double>(full) / static_cast<double>(users.size()), 0.9, 0.03);
}

TEST(Lengths, DependOnTheSeedAlone) {
  EXPECT_EQ(make_lengths("kuairand", 9000, 2048, 5), make_lengths("kuairand", 9000, 2048, 5));
  EXPECT_NE(make_lengths("lognormal:30:90", 900, 90, 5),
            make_lengths("lognormal:30:90", 900, 90, 6));
}

TEST(Lengths, RefuseWhatTheyCannotRead) {
  for (const char* text : {"", "kuairand:1", "uniform", "uniform:1:2", "lognormal:3", "normal:3"}) {
    EXPECT_NE(message_of([&] { make_lengths(text, 10, 10, 1); }).find("unknown lengths"),
              std::string::npos)
        << text;
  }
  for (const char* text : {"uniform:", "uniform:0", "uniform:-3", "uniform:3x", "lognormal:3:x"}) {
    EXPECT_NE(
        message_of([&] { make_lengths(text, 10, 10, 1); }).find("is not a positive whole number"),
        std::string::npos)
        << text;
  }
}

TEST(Timing, QuotesTheMedianAndItsNeighbours) {
  const Timing timing = summary_of({5, 1, 2, 3, 4, 9, 8, 7, 6, 10, 11});
  EXPECT_EQ(timing.ms, 6);
  EXPECT_EQ(timing.p10_ms, 2);
  EXPECT_EQ(timing.p90_ms, 10);
}

// The baseline pads, keeps whole maps and sums in another order; f32 agrees to rounding, bf16 to
// that of the maps it stores.
TEST(PaddedAttention, AgreesWithTheJaggedOperators) {
  const Context ctx({.threads = 1});
  const std::vector<std::vector<std::int64_t>> batches = {
      {7, 1}, {5, 3}, {40, 1, 17}, {33, 64, 2, 9}};
  for (const auto& lengths : batches) {
    for (const char* bias : {"none", "position", "time", "both"}) {
      OpProblem problem{
          .lengths = lengths, .max_length = 70, .heads = 3, .head_dim = 8, .bias = bias};
      for (const OpFamily& family : attention_families()) {
        for (const auto& [dtype, allowed] : {std::pair{DType::kF32, 1e-5}, {DType::kBf16, 3e-2}}) {
          EXPECT_LE(family.make(ctx, problem, dtype).front().error(), allowed)
              << family.op << " " << name_of(dtype) << " " << bias << " " << lengths.size();
        }
      }
    }
  }
}

TEST(OpCases, AreRightAtOddSizes) {
  const Context ctx({.threads = 1});
  const OpProblem problem{
      .lengths = {40, 1, 17, 60}, .max_length = 70, .heads = 3, .head_dim = 7, .table_rows = 1500};
  for (const OpFamily& family : all_families()) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const OpCase& op : family.make(ctx, problem, dtype)) {
        EXPECT_LE(op.error(), op.allowed_error)
            << op.op << " " << op.direction << " " << name_of(op.dtype);
        EXPECT_LT(op.peak_bytes, 2 * op.padded_bytes) << op.op;
      }
    }
  }
}

TEST(OpCases, CutABatchAfterItsFirstTokens) {
  const OpProblem problem{.lengths = {40, 1, 17}};
  EXPECT_EQ(problem.first_tokens(45).lengths, (std::vector<std::int64_t>{40, 1, 4}));
  EXPECT_EQ(problem.first_tokens(41).lengths, (std::vector<std::int64_t>{40, 1}));
  EXPECT_EQ(problem.first_tokens(100).lengths, problem.lengths);
}

}  // namespace
}  // namespace turbogr::bench
