#include "turbogr/ops/rows/half_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/messages.h"
#include "tests/support/simd_levels.h"
#include "turbogr/ops/rows/row_simd.h"

namespace turbogr::ops {
namespace {

using test::message_of;

TEST(HalfConversion, ReadsEveryNumberAtEveryInstructionSet) {
  std::vector<f16> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  for (const SimdLevel simd : test::simd_levels()) {
    std::vector<float> read(all.size());
    // From an odd place on, so that the tail is used.
    row_kernels<f16>(simd).widen(all.data() + 1, 1.0f, (1 << 16) - 1, read.data() + 1);
    for (std::size_t i = 1; i < all.size(); ++i) {
      const auto wanted = static_cast<float>(all[i]);
      ASSERT_TRUE(std::isnan(wanted) ? std::isnan(read[i])
                                     : std::bit_cast<std::uint32_t>(read[i]) ==
                                           std::bit_cast<std::uint32_t>(wanted))
          << name_of(simd) << " bits " << i;
    }
  }
}

TEST(HalfConversion, RoundsAsTheScalarTypeDoes) {
  std::vector<float> values = {0.0f,   -0.0f,    1.0f,      65504.0f, 65519.9f, 65520.0f,
                               -1e9f,  6.1e-5f,  6.0e-5f,   5.96e-8f, 2.98e-8f, 2.9e-8f,
                               1e-30f, INFINITY, -INFINITY, NAN};
  PhiloxStream random(4);
  for (int i = 0; i < 20000; ++i) {
    values.push_back(static_cast<float>(random.normal() * std::exp(12 * random.normal())));
  }
  for (const SimdLevel simd : test::simd_levels()) {
    std::vector<f16> rounded(values.size());
    row_kernels<f16>(simd).narrow(values.data(), 1.0f, static_cast<std::int64_t>(values.size()),
                                  rounded.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const f16 wanted(values[i]);
      ASSERT_TRUE(std::isnan(values[i]) ? std::isnan(static_cast<float>(rounded[i]))
                                        : rounded[i].bits == wanted.bits)
          << name_of(simd) << " value " << values[i];
    }
  }
}

struct Half {
  std::vector<f16> values;
  std::vector<float> scale;
  std::int64_t width;

  Half(std::int64_t rows, std::int64_t width_in)
      : values(static_cast<std::size_t>(rows * width_in), f16(NAN)),
        scale(static_cast<std::size_t>(rows), NAN),
        width(width_in) {}
  HalfRowsOut out() {
    const auto rows = static_cast<std::int64_t>(scale.size());
    return {View<f16, 2>{values.data(), {rows, width}}, {scale.data(), {rows}}};
  }
  double at(std::int64_t row, std::int64_t c) const {
    return convert<double>(values[static_cast<std::size_t>(row * width + c)]) *
           scale[static_cast<std::size_t>(row)];
  }
};

View<const std::int64_t, 1> view(const std::vector<std::int64_t>& ids) {
  return {ids.data(), {static_cast<std::int64_t>(ids.size())}};
}

TEST(HalfRows, KeepEveryElementToAShareOfTheLargest) {
  for (const SimdLevel simd : test::simd_levels()) {
    const Context ctx({.threads = 2, .simd = simd});
    for (const std::int64_t width : {1, 7, 33, 200}) {
      Tensor table = test::random_tensor<float>({100, width}, 3);
      const auto rows = table.view<float, 2>();
      for (std::int64_t r = 0; r < 100; ++r) {  // from 2^-50 to 2^49: far outside f16's range
        for (std::int64_t c = 0; c < width; ++c) {
          rows(r, c) = std::ldexp(rows(r, c), static_cast<int>(r) - 50);
        }
      }
      const std::vector<std::int64_t> ids = {99, 0, 50, 50, 7, 64};
      Half half(6, width);
      gather_half_rows(ctx, rows, view(ids), half.out());
      for (std::int64_t i = 0; i < 6; ++i) {
        const std::int64_t id = ids[static_cast<std::size_t>(i)];
        double largest = 0;
        for (std::int64_t c = 0; c < width; ++c) {
          largest = std::max(largest, std::abs(static_cast<double>(rows(id, c))));
        }
        EXPECT_EQ(half.scale[static_cast<std::size_t>(i)], largest);
        for (std::int64_t c = 0; c < width; ++c) {
          EXPECT_NEAR(half.at(i, c), rows(id, c), largest * 0x1.01p-12);
        }
      }
    }
  }
}

TEST(HalfRows, OfZerosAreZeroAndOfNonFiniteNumbersAreNot) {
  const Context ctx({.threads = 1});
  Tensor table(DType::kF32, {4, 5});
  const auto rows = table.view<float, 2>();
  rows(1, 3) = 1e-42f;  // has no inverse
  rows(2, 1) = INFINITY;
  rows(3, 4) = NAN;
  Half half(4, 5);
  gather_half_rows(ctx, rows, view({0, 1, 2, 3}), half.out());
  for (std::int64_t c = 0; c < 5; ++c) {
    EXPECT_EQ(half.at(0, c), 0);
    EXPECT_EQ(half.at(1, c), 0);
  }
  EXPECT_FALSE(std::isfinite(half.at(2, 1)));
  EXPECT_FALSE(std::isfinite(half.at(3, 4)));
}

TEST(HalfRows, ACopyOfTheTableGivesTheSameBitsOnceRefreshed) {
  const Context ctx({.threads = 2});
  Tensor table = test::random_tensor<float>({20, 13}, 5);
  const auto rows = table.view<float, 2>();
  std::vector<std::int64_t> all(20);
  for (std::size_t i = 0; i < 20; ++i) all[i] = static_cast<std::int64_t>(i);
  Half copy(20, 13);
  refresh_half_rows(ctx, rows, view(all), copy.out());
  for (std::int64_t c = 0; c < 13; ++c) rows(7, c) *= -3;
  for (std::int64_t c = 0; c < 13; ++c) rows(19, c) += 1;
  Half stale(2, 13), fresh(2, 13), direct(2, 13);
  const std::vector<std::int64_t> changed = {19, 7};
  gather_half_rows(ctx, copy.out(), view(changed), stale.out());
  refresh_half_rows(ctx, rows, view(changed), copy.out());
  gather_half_rows(ctx, copy.out(), view(changed), fresh.out());
  gather_half_rows(ctx, rows, view(changed), direct.out());
  const auto same = [](const Half& a, const Half& b) {
    return std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(f16)) == 0 &&
           a.scale == b.scale;
  };
  EXPECT_TRUE(same(fresh, direct));
  EXPECT_FALSE(same(stale, direct));
}

TEST(HalfRows, SayWhatIsWrong) {
  const Context ctx({.threads = 1});
  Tensor table = test::random_tensor<float>({4, 3}, 5);
  Half half(2, 3);
  const std::vector<std::int64_t> ids = {1, 4}, three = {0, 1, 2};
  EXPECT_EQ(
      message_of([&] { gather_half_rows(ctx, table.view<float, 2>(), view(ids), half.out()); }),
      "gather_half_rows: id 4 at position 1 for a table of 4 rows; it must be at least 0 and "
      "below that");
  EXPECT_TRUE(std::isnan(half.scale[0]));
  EXPECT_EQ(
      message_of([&] { gather_half_rows(ctx, table.view<float, 2>(), view(three), half.out()); }),
      "gather_half_rows: out is [2, 3]; wanted [3, 3]");
  EXPECT_EQ(
      message_of([&] { refresh_half_rows(ctx, table.view<float, 2>(), view(three), half.out()); }),
      "refresh_half_rows: out is [2, 3]; wanted [4, 3]");
  HalfRows bad = half.out();
  bad.scale.shape[0] = 1;
  EXPECT_EQ(message_of([&] {
              gather_half_rows(ctx, bad, view({0, 1}), half.out());
            }),
            "gather_half_rows: table's scale has 1 elements; wanted 2");
}

}  // namespace
}  // namespace turbogr::ops
