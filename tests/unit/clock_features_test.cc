#include "turbogr/ops/rows/clock_features.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/block.h"
#include "tests/support/messages.h"

namespace turbogr::ops {
namespace {

using test::message_of;

Tensor features_of(const std::vector<std::int64_t>& times) {
  const Context ctx({.threads = 2});
  test::Block<double> features(std::ssize(times), kClockFeatures);
  clock_features<double>(ctx, {times.data(), {std::ssize(times)}}, features.rows());
  return features.values();
}

TEST(ClockFeatures, TurnWithTheHourAndTheDay) {
  const Tensor at =
      features_of({0, 3599, 3600, 23 * 3600 + 5, 86400, 6 * 86400 + 7200, 604800, -1});
  const std::vector<double> hours = {0, 0, 1, 23, 0, 2, 0, 23};
  const std::vector<double> days = {0, 0, 0, 0, 1, 6, 0, 6};
  for (std::size_t i = 0; i < hours.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    EXPECT_NEAR(test::element(at, 4 * row), std::cos(6.28 * hours[i] / 24), 1e-15);
    EXPECT_NEAR(test::element(at, 4 * row + 1), std::sin(6.28 * hours[i] / 24), 1e-15);
    EXPECT_NEAR(test::element(at, 4 * row + 2), std::cos(6.28 * days[i] / 7), 1e-15);
    EXPECT_NEAR(test::element(at, 4 * row + 3), std::sin(6.28 * days[i] / 7), 1e-15);
  }
  EXPECT_EQ(features_of({}).size(), 0);
}

TEST(ClockFeatures, RoundToTheFormatAndSayWhatIsWrong) {
  const Context ctx({.threads = 1});
  const std::vector<std::int64_t> times = {7 * 3600, 3 * 86400};
  const Tensor wide = features_of(times);
  Tensor narrow(DType::kF32, {2, 4}), rounded(DType::kBf16, {2, 4}), five(DType::kF32, {2, 5});
  clock_features<float>(ctx, {times.data(), {2}}, narrow.view<float, 2>());
  clock_features<bf16>(ctx, {times.data(), {2}}, rounded.view<bf16, 2>());
  EXPECT_LE(test::max_error(narrow, wide), 0x1p-24);
  EXPECT_LE(test::max_error(rounded, wide), 0x1p-8);
  EXPECT_EQ(message_of([&] {
              clock_features<float>(ctx, {times.data(), {2}}, five.view<float, 2>());
            }),
            "clock_features: features is [2, 5]; wanted [2, 4]");
}

}  // namespace
}  // namespace turbogr::ops
