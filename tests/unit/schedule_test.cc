#include "turbogr/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/messages.h"

namespace turbogr::optim {
namespace {

TEST(Schedule, ConstantIsOneAfterALinearWarmUp) {
  const Schedule schedule = {.warmup_steps = 4};
  EXPECT_DOUBLE_EQ(schedule.factor(0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.factor(3), 1.0);
  EXPECT_DOUBLE_EQ(schedule.factor(1000), 1.0);
  const Schedule from_zero = {.warmup_steps = 4, .warmup_from_zero = true};
  EXPECT_DOUBLE_EQ(from_zero.factor(0), 0.0);
  EXPECT_DOUBLE_EQ(from_zero.factor(3), 0.75);
  EXPECT_DOUBLE_EQ(from_zero.factor(4), 1.0);
}

TEST(Schedule, LinearAndCosineEndAtTheFloorAndStayThere) {
  const Schedule linear = {ScheduleKind::kLinear, 10, 110, 0.1};
  EXPECT_DOUBLE_EQ(linear.factor(10), 1.0);
  EXPECT_NEAR(linear.factor(60), 0.55, 1e-12);
  EXPECT_NEAR(linear.factor(110), 0.1, 1e-12);
  EXPECT_NEAR(linear.factor(500), 0.1, 1e-12);
  const Schedule cosine = {ScheduleKind::kCosine, 0, 100, 0};
  EXPECT_NEAR(cosine.factor(50), 0.5, 1e-12);
  EXPECT_NEAR(cosine.factor(25), 0.5 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(cosine.factor(100), 0.0, 1e-12);
}

TEST(Schedule, SaysWhatIsWrong) {
  EXPECT_EQ(schedule_from_name("cosine"), ScheduleKind::kCosine);
  EXPECT_NE(
      test::message_of([] { schedule_from_name("step"); }).find("use constant, linear or cosine"),
      std::string::npos);
  const Schedule schedule = {ScheduleKind::kLinear, 10, 10, 0};
  EXPECT_NE(test::message_of([&] { schedule.factor(10); }).find("the warm-up must be shorter"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::optim
