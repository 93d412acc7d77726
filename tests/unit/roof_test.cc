#include "turbogr/run/roof.h"

#include <gtest/gtest.h>

namespace turbogr::train {
namespace {

TEST(Roof, IsMeasuredAgainWhenStepsGetAboveIt) {
  int measured = 0;
  Roof roof(0.1, [&measured] { return ++measured == 1 ? 0.3 : 0.2; });
  EXPECT_FALSE(roof.reached(0.1));
  EXPECT_EQ(measured, 0);
  EXPECT_TRUE(roof.reached(0.15));
  EXPECT_EQ(roof.tflops(), 0.3);
  EXPECT_FALSE(roof.reached(0.29));
  EXPECT_TRUE(roof.reached(0.4));  // busy again: what was reached is the better measurement
  EXPECT_EQ(roof.tflops(), 0.4);
  EXPECT_EQ(measured, 2);
}

TEST(Roof, NeedsNoMemoryToRise) {
  Roof roof(0.1, []() -> double { throw OutOfMemory("out of memory on cpu"); });
  EXPECT_TRUE(roof.reached(0.2));
  EXPECT_EQ(roof.tflops(), 0.2);
}

TEST(Roof, OfTheConfigStays) {
  const Context ctx({.threads = 1});
  Roof roof = make_roof<float>(ctx, 0.5);
  EXPECT_FALSE(roof.reached(2));
  EXPECT_EQ(roof.tflops(), 0.5);
}

TEST(Roof, OfACpuIsThatOfAProduct) {
  const Context ctx({.threads = 1});
  EXPECT_GT(make_roof<float>(ctx, 0).tflops(), 1e-4);
  EXPECT_GT(make_roof<bf16>(ctx, 0).tflops(), 1e-4);
}

}  // namespace
}  // namespace turbogr::train
