#include "turbogr/ops/attention/time_bucket.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace turbogr::ops {
namespace {

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

int by_formula(std::uint64_t gap) {
  const long double log = std::log(static_cast<long double>(std::max<std::uint64_t>(1, gap)));
  return static_cast<int>(std::clamp(std::floor(log / 0.301L), 0.0L, 128.0L));
}

// Two of the thresholds above 10^16 lie within a few hundredths of a whole number, where even the
// formula's 64 bits round to the wrong side. The table was computed with 60 decimal digits.
bool too_close_for_long_double(std::uint64_t gap) {
  const long double quotient = std::log(static_cast<long double>(gap)) / 0.301L;
  return gap > 10'000'000'000'000'000u && std::abs(quotient - std::round(quotient)) < 3e-17L;
}

TEST(TimeBucket, FollowsTheFormulaAroundEveryThreshold) {
  for (int k = 0; k < kTimeBuckets; ++k) {
    const std::uint64_t threshold = kTimeBucketTable.first_gap[k];
    for (const std::uint64_t gap : {threshold - 1, threshold, threshold + 1}) {
      if (too_close_for_long_double(gap)) continue;
      EXPECT_EQ(time_bucket_of_gap(gap), by_formula(gap)) << k << " " << gap;
    }
    EXPECT_GE(time_bucket_of_gap(threshold), k);
    EXPECT_LT(time_bucket_of_gap(threshold - 1), std::max(k, 1));
  }
}

TEST(TimeBucket, FollowsTheFormulaAroundPowersOfTwoAndForSmallGaps) {
  for (std::uint64_t gap = 0; gap < 5000; ++gap) {
    EXPECT_EQ(time_bucket_of_gap(gap), by_formula(gap)) << gap;
  }
  for (int bits = 0; bits < 64; ++bits) {
    const std::uint64_t power = std::uint64_t{1} << bits;
    EXPECT_EQ(time_bucket_of_gap(power), by_formula(power));
    EXPECT_EQ(time_bucket_of_gap(power - 1), by_formula(power - 1));
  }
}

TEST(TimeBucket, TakesTimesThatAreFurtherApartThanInt64) {
  EXPECT_EQ(time_bucket(kMax, kMin), 128);
  EXPECT_EQ(time_bucket(kMin, kMax), 128);
  EXPECT_EQ(time_gap(kMin, kMax), ~std::uint64_t{0});
  EXPECT_EQ(time_bucket(kMin, kMin), 0);
  EXPECT_EQ(time_bucket(kMin + 2, kMin), 2);
}

TEST(TimeBucket, DoesNotCareWhichTimeIsLater) {
  for (const std::int64_t gap : {0, 1, 2, 100, 86400}) {
    EXPECT_EQ(time_bucket(1650000000 + gap, 1650000000), time_bucket(1650000000, 1650000000 + gap));
  }
}

}  // namespace
}  // namespace turbogr::ops
