#include "turbogr/run/peak_rate.h"

#include <gtest/gtest.h>

namespace turbogr::run {
namespace {

TEST(PeakRate, IsMeasuredAgainWhenStepsGetAboveIt) {
  int measured = 0;
  PeakRate peak(0.1, [&measured] { return ++measured == 1 ? 0.3 : 0.2; });
  EXPECT_FALSE(peak.reached(0.1));
  EXPECT_EQ(measured, 0);
  EXPECT_TRUE(peak.reached(0.15));
  EXPECT_EQ(peak.tflops(), 0.3);
  EXPECT_FALSE(peak.reached(0.29));
  EXPECT_TRUE(peak.reached(0.4));  // busy again: what was reached is the better measurement
  EXPECT_EQ(peak.tflops(), 0.4);
  EXPECT_EQ(measured, 2);
}

TEST(PeakRate, NeedsNoMemoryToRise) {
  PeakRate peak(0.1, []() -> double { throw OutOfMemory("out of memory on cpu"); });
  EXPECT_TRUE(peak.reached(0.2));
  EXPECT_EQ(peak.tflops(), 0.2);
}

TEST(PeakRate, OfTheConfigStays) {
  const Context ctx({.threads = 1});
  PeakRate peak = make_peak_rate<float>(ctx, 0.5);
  EXPECT_FALSE(peak.reached(2));
  EXPECT_EQ(peak.tflops(), 0.5);
}

TEST(PeakRate, OfACpuIsThatOfAProduct) {
  const Context ctx({.threads = 1});
  EXPECT_GT(make_peak_rate<float>(ctx, 0).tflops(), 1e-4);
  EXPECT_GT(make_peak_rate<bf16>(ctx, 0).tflops(), 1e-4);
}

}  // namespace
}  // namespace turbogr::run
