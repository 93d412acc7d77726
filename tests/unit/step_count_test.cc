#include "turbogr/run/step_count.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "turbogr/core/philox.h"

namespace turbogr::run {
namespace {

std::vector<data::Window> windows_of(int count) {
  PhiloxStream random(5);
  std::vector<data::Window> windows;
  for (int i = 0; i < count; ++i) {
    windows.push_back(
        {.first_event = 0, .length = static_cast<std::int32_t>(1 + random.below(50)), .user = i});
  }
  return windows;
}

// What a run of so many epochs really does.
std::int64_t steps_taken(const std::vector<data::Window>& windows, const data::PlanOptions& plan,
                         std::int64_t accumulate, int epochs) {
  data::BatchPlanner planner(windows, plan);
  std::int64_t steps = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (std::int64_t parts = accumulate; parts == accumulate;) {
      parts = 0;
      while (parts < accumulate && planner.next_step()) ++parts;
      if (parts == accumulate || parts > 0) ++steps;
    }
  }
  return steps;
}

TEST(StepCount, IsWhatARunTakes) {
  const auto windows = windows_of(300);
  for (const bool tokens : {true, false}) {
    data::PlanOptions plan{
        .budget = tokens ? data::BatchBudget::tokens(130) : data::BatchBudget::samples(7),
        .seed = 3};
    for (const std::int64_t accumulate : {1, 4}) {
      const StepCount count = count_steps(windows, plan, accumulate, 9);
      EXPECT_EQ(count.in_all, steps_taken(windows, plan, accumulate, 9)) << tokens << accumulate;
      EXPECT_EQ(count.an_epoch, steps_taken(windows, plan, accumulate, 1)) << tokens << accumulate;
    }
    plan.shuffle = false;
    EXPECT_EQ(count_steps(windows, plan, 1, 9).in_all, steps_taken(windows, plan, 1, 9));
  }
}

TEST(StepCount, LongRunsAreTakenToGoOnAsTheyBegan) {
  const auto windows = windows_of(300);
  const data::PlanOptions plan{.budget = data::BatchBudget::tokens(130), .seed = 3};
  const StepCount two = count_steps(windows, plan, 1, 2);
  EXPECT_EQ(count_steps(windows, plan, 1, 20, 600).in_all, 10 * two.in_all);
  EXPECT_EQ(count_steps(windows, plan, 1, 20, 1).in_all, 20 * two.an_epoch);
  EXPECT_GT(count_steps(windows, plan, 1, std::numeric_limits<std::int64_t>::max()).in_all,
            std::int64_t{1} << 60);
}

TEST(StepCount, WithoutEpochsOnlyOneIsKnown) {
  const auto windows = windows_of(30);
  const data::PlanOptions plan{.budget = data::BatchBudget::samples(10)};
  EXPECT_EQ(count_steps(windows, plan, 1, 0).an_epoch, 3);
  EXPECT_EQ(count_steps(windows, plan, 1, 0).in_all, 0);
  EXPECT_EQ(count_steps({}, plan, 1, 5).in_all, 0);
}

}  // namespace
}  // namespace turbogr::run
