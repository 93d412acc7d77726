// The bound of docs/distributed.md on a problem whose constants are known: F(x) = 1/2 sum l_i
// x_i^2, gradients with normal noise, and coordinates that are read one update late as often as
// rows of consecutive batches meet.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "turbogr/core/philox.h"

namespace turbogr {
namespace {

constexpr int kCoordinates = 20;
constexpr double kSmoothness = 2;  // L, the largest curvature
constexpr double kNoise = 1.5;     // sigma^2, over all coordinates
constexpr int kRuns = 20;

struct Measured {
  double gradient = 0;  // mean of |grad F(x_t)|^2 over steps and runs
  double start = 0;     // F(x_0) - min F
};

// share: how many of the coordinates a step reads late.
Measured descend(double rate, int steps, double share) {
  Measured measured;
  for (int run = 0; run < kRuns; ++run) {
    PhiloxStream random(9, static_cast<std::uint64_t>(run));
    std::vector<double> x(kCoordinates, 1.0), before = x;
    for (int step = 0; step < steps; ++step) {
      const std::vector<double> now = x;
      for (int i = 0; i < kCoordinates; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double curvature = kSmoothness * (i + 1) / kCoordinates;
        const double gradient = curvature * now[at];
        measured.gradient += gradient * gradient / (steps * kRuns);
        if (step == 0) measured.start += 0.5 * curvature * now[at] * now[at] / kRuns;
        const bool late = random.uniform() < share;
        const double read = late ? before[at] : now[at];
        x[at] -= rate * (curvature * read + random.normal() * std::sqrt(kNoise / kCoordinates));
      }
      before = now;
    }
  }
  return measured;
}

TEST(DelayBound, TheDelayCostsWhatTheBoundAllows) {
  for (const int steps : {100, 1000}) {
    for (const double share : {0.1, 1.0}) {
      const double start = descend(0.1, 1, 0).start;
      const double rate =
          std::min(0.5 / kSmoothness, std::sqrt(2 * start / (kSmoothness * steps * kNoise)));
      const Measured on_time = descend(rate, steps, 0);
      const Measured late = descend(rate, steps, share);
      const double without = 2 * start / (rate * steps) + kSmoothness * rate * kNoise;
      const double delay = rate * rate * kSmoothness * kSmoothness * share * kNoise;
      EXPECT_LE(on_time.gradient, without);
      EXPECT_LE(late.gradient, without + delay);
      // The difference the delay makes, beside the term the bound has for it.
      EXPECT_LE(late.gradient - on_time.gradient, delay + 0.02 * on_time.gradient)
          << steps << " steps, share " << share;
    }
  }
}

// A step too long for the delay diverges where one on time does not: eta <= c / (L tau) is needed.
TEST(DelayBound, LongStepsNeedRowsOnTime) {
  const double rate = 1.2 / kSmoothness;
  EXPECT_LT(descend(rate, 300, 0).gradient, 1e3);
  EXPECT_GT(descend(rate, 300, 1).gradient, 1e6);
}

}  // namespace
}  // namespace turbogr
