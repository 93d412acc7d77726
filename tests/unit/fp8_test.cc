#include "turbogr/ops/dense/fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/block.h"
#include "tests/support/data.h"
#include "tests/support/fp8_codes.h"
#include "tests/support/messages.h"
#include "tests/support/tolerance.h"
#include "turbogr/ops/dense/fp8_linear.h"

namespace turbogr::ops {
namespace {

using test::element;
using test::fp8_value;
using test::message_of;
using test::random_tensor;

constexpr Fp8Format kFormats[] = {Fp8Format::kE4m3, Fp8Format::kE5m2};

std::vector<double> finite_values(Fp8Format format) {  // that are not negative
  std::vector<double> values;
  for (int code = 0; code < 0x80; ++code) {
    const double value = fp8_value(format, static_cast<std::uint8_t>(code));
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

TEST(Fp8, HasTheFormatsLargestAndSmallestNumbers) {
  EXPECT_EQ(finite_values(Fp8Format::kE4m3).back(), 448);
  EXPECT_EQ(finite_values(Fp8Format::kE4m3)[1], 0x1p-9);
  EXPECT_EQ(finite_values(Fp8Format::kE5m2).back(), 57344);
  EXPECT_EQ(finite_values(Fp8Format::kE5m2)[1], 0x1p-16);
}

// Codes count upwards, so that the even one of two neighbours is the one with an even place.
TEST(Fp8, RoundsToTheNearestAndTiesToEven) {
  for (const Fp8Format format : kFormats) {
    const std::vector<double> values = finite_values(format);
    for (std::size_t i = 0; i + 1 < values.size(); ++i) {
      const double low = values[i], high = values[i + 1], middle = (low + high) / 2;
      const auto rounded = [&](double value) {
        const float result = round_to_fp8(format, static_cast<float>(value));
        EXPECT_EQ(round_to_fp8(format, static_cast<float>(-value)), -result) << value;
        return static_cast<double>(result);
      };
      EXPECT_EQ(rounded(low), low);
      EXPECT_EQ(rounded(middle), i % 2 == 0 ? low : high) << middle;
      EXPECT_EQ(rounded(std::nextafterf(static_cast<float>(middle), 0)), low) << middle;
      EXPECT_EQ(rounded(std::nextafterf(static_cast<float>(middle), INFINITY)), high) << middle;
    }
    EXPECT_EQ(round_to_fp8(format, INFINITY), values.back());
    EXPECT_EQ(round_to_fp8(format, -3e38f), -values.back());
    EXPECT_TRUE(std::isnan(round_to_fp8(format, NAN)));
    EXPECT_TRUE(std::signbit(round_to_fp8(format, -0.0f)));
  }
}

TEST(Fp8, AScaleIsAPowerOfTwoThatLeavesRoom) {
  for (const Fp8Format format : kFormats) {
    const double top = finite_values(format).back();
    for (const float largest : {1e-20f, 3e-7f, 0.5f, 0.999f, 1.0f, 448.0f, 6e20f}) {
      const float scale = fp8_scale(format, largest);
      EXPECT_EQ(scale, std::ldexp(1.0f, std::ilogb(scale)));
      EXPECT_GE(top / (largest * scale), 3.5) << largest;
      EXPECT_LE(top / (largest * scale), 7) << largest;
    }
    EXPECT_EQ(fp8_scale(format, 0), 1);
  }
}

// One matrix and its place.
struct Quantised {
  Tensor values;
  Fp8Scale scale = {};

  Fp8Rows<float> rows(Fp8Format format) {
    return {.format = format,
            .rows = values.shape()[0],
            .cols = values.shape()[1],
            .values = values.view<float, 2>().data,
            .scale = &scale};
  }
};

TEST(Fp8, ScalesByTheMatrixBeforeAndLooksAtThisOneForTheNext) {
  Context ctx({.threads = 2});
  for (const Fp8Format format : kFormats) {
    const double top = finite_values(format).back();
    Quantised out{Tensor(DType::kF32, {130, 5})};
    Tensor x = random_tensor<float>({130, 5}, 1);
    x.view<float, 2>()(77, 3) = -5.0f;
    Fp8Rows<float> alone = out.rows(format);
    alone.values = nullptr;
    quantise<float>(ctx, x.view<float, 2>(), alone);
    EXPECT_EQ(out.scale.largest, 5);
    quantise<float>(ctx, x.view<float, 2>(), out.rows(format));
    const float scale = fp8_scale(format, 5);
    EXPECT_EQ(out.scale.inverse, 1 / scale);
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const auto given = static_cast<float>(element(x, i));
      EXPECT_EQ(element(out.values, i), round_to_fp8(format, given * scale) / scale);
    }
    // Too large for the scale: the largest there is, and a scale that fits the next time.
    x.view<float, 2>()(0, 0) = 1000;
    quantise<float>(ctx, x.view<float, 2>(), out.rows(format));
    EXPECT_EQ(element(out.values, 0), top / scale);
    EXPECT_EQ(out.scale.largest, 1000);
  }
}

TEST(Fp8, NumbersThatAreNotFiniteLeaveTheScaleAsItWas) {
  Context ctx({.threads = 2});
  for (const float bad : {NAN, -INFINITY}) {
    Quantised out{Tensor(DType::kF32, {200, 3}), {.largest = 2}};
    Tensor x = random_tensor<float>({200, 3}, 1);
    x.view<float, 2>()(100, 1) = bad;
    quantise<float>(ctx, x.view<float, 2>(), out.rows(Fp8Format::kE4m3));
    EXPECT_EQ(out.scale.largest, 2);
    EXPECT_EQ(std::isnan(element(out.values, 301)), std::isnan(bad));
  }
}

// Products are of the rounded matrices; sums are double's here, so nothing else is rounded.
TEST(Fp8Linear, MultipliesTheRoundedMatrices) {
  Context ctx({.threads = 2});
  constexpr std::int64_t kRows = 19, kInputs = 16, kOutputs = 32;
  const Tensor x = random_tensor<double>({kRows, kInputs}, 1);
  const Tensor w = random_tensor<double>({kInputs, kOutputs}, 2);
  const Tensor dz = random_tensor<double>({kRows, kOutputs}, 3, 1e-6);
  Fp8Scale scales[3] = {};
  Tensor memory[3];
  const Tensor* given[3] = {&x, &w, &dz};
  Fp8Rows<double> rounded[3];
  for (int i = 0; i < 3; ++i) {
    memory[i] = Tensor(DType::kF64, given[i]->shape());
    rounded[i] = {.format = i == 2 ? Fp8Format::kE5m2 : Fp8Format::kE4m3,
                  .rows = given[i]->shape()[0],
                  .cols = given[i]->shape()[1],
                  .scale = scales + i};
    quantise<double>(ctx, given[i]->view<double, 2>(), rounded[i]);
    rounded[i].values = memory[i].view<double, 2>().data;
    quantise<double>(ctx, given[i]->view<double, 2>(), rounded[i]);
    // e4m3 has four significant bits, e5m2 three.
    const double error = test::max_error(memory[i], *given[i]) / test::max_magnitude(*given[i]);
    EXPECT_GT(error, 0x1p-10);
    EXPECT_LT(error, i == 2 ? 0x1p-3 : 0x1p-4);
  }
  PackedWeight<double> packed(ctx, kInputs, kOutputs);
  ctx.workspace().reserve(std::max(linear_workspace_bytes(ctx, packed),
                                   linear_backward_workspace_bytes(ctx, packed, kRows)));
  packed.pack(ctx, memory[1].view<double, 2>());
  const Fp8Weight<double> weight = {rounded[1], &packed};
  const Tensor residual = random_tensor<double>({kRows, kOutputs}, 4);
  Tensor y(DType::kF64, {kRows, kOutputs}), dx(DType::kF64, {kRows, kInputs}),
      dw(DType::kF64, {kInputs, kOutputs});
  fp8_linear<double>(ctx, rounded[0], weight, {.residual = residual.view<double, 2>()},
                     y.view<double, 2>());
  fp8_linear_backward<double>(ctx, rounded[0], weight, rounded[2],
                              {.dx = dx.view<double, 2>(), .dw = dw.view<double, 2>()});
  const auto at = [](const Tensor& t, std::int64_t r, std::int64_t c) {
    return element(t, r * t.shape()[1] + c);
  };
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t n = 0; n < kOutputs; ++n) {
      double sum = at(residual, r, n);
      for (std::int64_t k = 0; k < kInputs; ++k) sum += at(memory[0], r, k) * at(memory[1], k, n);
      EXPECT_NEAR(at(y, r, n), sum, 1e-13);
    }
    for (std::int64_t k = 0; k < kInputs; ++k) {
      double sum = 0;
      for (std::int64_t n = 0; n < kOutputs; ++n) sum += at(memory[2], r, n) * at(memory[1], k, n);
      EXPECT_NEAR(at(dx, r, k), sum, 1e-19);
    }
  }
  for (std::int64_t k = 0; k < kInputs; ++k) {
    for (std::int64_t n = 0; n < kOutputs; ++n) {
      double sum = 0;
      for (std::int64_t r = 0; r < kRows; ++r) sum += at(memory[0], r, k) * at(memory[2], r, n);
      EXPECT_NEAR(at(dw, k, n), sum, 1e-19);
    }
  }
}

TEST(Fp8Linear, SaysWhatIsWrong) {
  Context ctx;
  Fp8Scale scale = {};
  Tensor memory(DType::kF32, {4, 16});
  const Fp8Rows<float> x = {
      .rows = 4, .cols = 16, .values = memory.view<float, 2>().data, .scale = &scale};
  PackedWeight<float> packed(ctx, 8, 8);
  const Fp8Weight<float> weight = {{.rows = 8, .cols = 8}, &packed};
  EXPECT_NE(message_of([&] {
              fp8_linear<float>(ctx, x, weight, {}, {});
            }).find("x has 16 columns for a weight of [8, 8]"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              fp8_linear<float>(ctx, {.rows = 4, .cols = 8}, {{.rows = 8, .cols = 8}}, {}, {});
            }).find("must be packed"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              quantise<float>(ctx, memory.view<float, 2>(), {.rows = 4, .cols = 16});
            }).find("no place for the scale"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::ops
