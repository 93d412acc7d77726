#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/simd_levels.h"
#include "turbogr/core/math_simd.h"

namespace turbogr {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Every 9973rd float from zero to a limit, of both signs.
std::vector<float> floats_up_to(float largest) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits <= std::bit_cast<std::uint32_t>(largest); bits += 9973) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(-values.back());
  }
  return values;
}

// Distance in units of the last place of `want` as an f32; results below the smallest normal number
// are measured in its units.
double ulps(float found, long double want) {
  int exponent = 0;
  std::frexp(static_cast<double>(std::abs(want)), &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::abs(static_cast<double>(static_cast<long double>(found) - want)) / unit;
}

template <class Exact>
double worst_ulps(MathTable::Function function, const std::vector<float>& x, Exact&& exact) {
  std::vector<float> y(x.size());
  function(static_cast<std::int64_t>(x.size()), x.data(), y.data());
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(y[i], exact(static_cast<long double>(x[i])));
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

long double exact_sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }

TEST(SimdMath, ExpIsWithinOneUlp) {
  for (const SimdLevel simd : test::simd_levels()) {
    const double worst = worst_ulps(math_table(simd).exp, floats_up_to(87.3f),
                                    [](long double x) { return std::exp(x); });
    EXPECT_LE(worst, 1.0) << name_of(simd);
  }
}

TEST(SimdMath, SigmoidAndSiluAreWithinThreeUlps) {
  for (const SimdLevel simd : test::simd_levels()) {
    const std::vector<float> x = floats_up_to(87.0f);
    EXPECT_LE(worst_ulps(math_table(simd).sigmoid, x, exact_sigmoid), 2.5) << name_of(simd);
    EXPECT_LE(
        worst_ulps(math_table(simd).silu, x, [](long double v) { return v * exact_sigmoid(v); }),
        4.0)
        << name_of(simd);
  }
}

// The slope crosses zero near -1.28, so its error is absolute: it lies between -0.1 and 1.1. What
// is lost in 1 - s counts x times, and beyond x = 17 there is nothing left to lose.
TEST(SimdMath, SiluSlopeIsGoodToAMillionth) {
  for (const SimdLevel simd : test::simd_levels()) {
    const std::vector<float> x = floats_up_to(87.0f);
    std::vector<float> y(x.size());
    math_table(simd).silu_slope(static_cast<std::int64_t>(x.size()), x.data(), y.data());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const long double s = exact_sigmoid(x[i]);
      const long double want = s * (1 + x[i] * (1 - s));
      worst = std::max(worst, std::abs(static_cast<double>(y[i] - want)));
    }
    EXPECT_LE(worst, 17 * 0x1p-24) << name_of(simd);
  }
}

// Subnormal numbers, infinities and NaNs among them, together and apart from ordinary ones.
TEST(SimdMath, RoundsToBf16AsTheScalarTypeDoes) {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += 65521) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    if (bits % 7 == 0) x.push_back(1.0f + 3 * 0x1p-8f);
    if (bits % 11 == 0) x.push_back(0x1p-130f);
  }
  for (const SimdLevel simd : test::simd_levels()) {
    std::vector<bf16> y(x.size());
    math_table(simd).to_bf16(static_cast<std::int64_t>(x.size()), x.data(), y.data());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) wrong += y[i].bits != bf16(x[i]).bits ? 1 : 0;
    EXPECT_EQ(wrong, 0u) << name_of(simd);
  }
}

TEST(SimdMath, KeepsTheEndsOfTheLine) {
  const std::vector<float> x = {0.0f,   -0.0f,   kInfinity, -kInfinity, kNaN, 88.8f,
                                -87.4f, -103.0f, 1e30f,     -1e30f,     89.0f};
  for (const SimdLevel simd : test::simd_levels()) {
    SCOPED_TRACE(name_of(simd));
    std::vector<float> y(x.size());
    const auto run = [&](MathTable::Function function) {
      function(static_cast<std::int64_t>(x.size()), x.data(), y.data());
    };
    run(math_table(simd).exp);
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 1.0f);
    EXPECT_EQ(y[2], kInfinity);
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[5], kInfinity);
    EXPECT_EQ(y[6], 0.0f);
    EXPECT_EQ(y[7], 0.0f);
    EXPECT_EQ(y[8], kInfinity);
    EXPECT_EQ(y[9], 0.0f);
    run(math_table(simd).sigmoid);
    EXPECT_EQ(y[0], 0.5f);
    EXPECT_EQ(y[2], 1.0f);
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[9], 0.0f);
    run(math_table(simd).silu);
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[2], kInfinity);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[8], 1e30f);
    EXPECT_EQ(y[9], 0.0f);
    run(math_table(simd).silu_slope);
    EXPECT_EQ(y[0], 0.5f);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[8], 1.0f);
    EXPECT_EQ(y[9], 0.0f);
  }
}

}  // namespace
}  // namespace turbogr
