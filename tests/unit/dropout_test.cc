#include "turbogr/ops/dense/dropout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/messages.h"
#include "tests/support/simd_levels.h"
#include "tests/support/tolerance.h"
#include "turbogr/ops/dense/dropout_mask.h"

namespace turbogr::ops {
namespace {

using test::element;
using test::message_of;
using test::random_tensor;

template <class T>
Tensor run(const Context& ctx, const Tensor& x, const DropoutOptions& options) {
  Tensor y(x.dtype(), x.shape());
  dropout<T>(ctx, x.view<T, 2>(), options, y.view<T, 2>());
  return y;
}

template <class T>
class DropoutOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(DropoutOf, Formats);

TYPED_TEST(DropoutOf, DrawsTheDefinedMaskAtEveryWidthAndInstructionSet) {
  for (const SimdLevel simd : test::simd_levels()) {
    const Context ctx({.threads = 2, .simd = simd});
    for (const std::int64_t width : {1, 7, 16, 50, 129, 300}) {
      const Tensor x = random_tensor<TypeParam>({5, width}, 3);
      const DropoutOptions options = {.rate = 0.3, .seed = 11, .site = (1ull << 39) + 5};
      const Tensor y = run<TypeParam>(ctx, x, options);
      for (std::int64_t r = 0; r < 5; ++r) {
        const DropoutRow row = dropout_row(options, r);
        for (std::int64_t c = 0; c < width; ++c) {
          const double want = element(x, r * width + c) * row.factor(c);
          EXPECT_NEAR(element(y, r * width + c), want, std::abs(want) * 0x1p-8) << name_of(simd);
          EXPECT_EQ(element(y, r * width + c) == 0.0, row.factor(c) == 0.0);
        }
      }
    }
  }
}

TEST(Dropout, KeepsTheMeanAndTheAskedShare) {
  const Context ctx;
  Tensor x(DType::kF32, {1000, 128});
  for (float& value : std::span(x.view<float, 2>().data, 128000)) value = 1.0f;
  const Tensor y = run<float>(ctx, x, {.rate = 0.2, .seed = 1});
  double sum = 0;
  int dropped = 0;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    sum += element(y, i);
    dropped += element(y, i) == 0.0 ? 1 : 0;
  }
  EXPECT_NEAR(sum / 128000, 1.0, 0.01);
  EXPECT_NEAR(dropped / 128000.0, 0.2, 0.005);
}

TEST(Dropout, FollowsTheRowKeyNotTheRow) {
  const Context ctx;
  const Tensor x = random_tensor<float>({2, 40}, 5);
  Tensor swapped(DType::kF32, {2, 40});
  std::memcpy(swapped.data(), x.data() + 160, 160);
  std::memcpy(swapped.data() + 160, x.data(), 160);
  const std::vector<std::uint64_t> keys = {1ull << 60, 77};
  const std::vector<std::uint64_t> swapped_keys = {77, 1ull << 60};
  const Tensor y = run<float>(ctx, x, {.rate = 0.5, .seed = 2, .row_keys = {keys.data(), {2}}});
  const Tensor z =
      run<float>(ctx, swapped, {.rate = 0.5, .seed = 2, .row_keys = {swapped_keys.data(), {2}}});
  EXPECT_EQ(std::memcmp(y.data(), z.data() + 160, 160), 0);
  EXPECT_EQ(std::memcmp(y.data() + 160, z.data(), 160), 0);
}

TEST(Dropout, BackwardAppliesTheSameMask) {
  const Context ctx;
  const Tensor x = random_tensor<float>({3, 33}, 5);
  const DropoutOptions options = {.rate = 0.4, .seed = 9, .site = 12};
  const Tensor y = run<float>(ctx, x, options);
  Tensor dx(DType::kF32, {3, 33});
  dropout_backward<float>(ctx, x.view<float, 2>(), options, dx.view<float, 2>());
  EXPECT_EQ(std::memcmp(y.data(), dx.data(), dx.bytes()), 0);
}

TEST(Dropout, SaysWhatIsWrong) {
  const Context ctx;
  Tensor x(DType::kF32, {2, 4});
  const auto call = [&](const DropoutOptions& options) {
    return message_of([&] { run<float>(ctx, x, options); });
  };
  EXPECT_EQ(call({.rate = 1.0}), "dropout: dropout rate is 1; it must be at least 0 and below 1");
  EXPECT_NE(call({.rate = 0.1, .site = 1ull << 40}).find("below 2^40"), std::string::npos);
  const std::vector<std::uint64_t> keys(3);
  EXPECT_NE(
      call({.rate = 0.1, .row_keys = {keys.data(), {3}}}).find("3 dropout row keys for 2 rows"),
      std::string::npos);
  Tensor y(DType::kF32, {2, 3});
  EXPECT_EQ(message_of([&] { dropout<float>(ctx, x.view<float, 2>(), {}, y.view<float, 2>()); }),
            "dropout: y is [2, 3]; wanted [2, 4]");
}

}  // namespace
}  // namespace turbogr::ops
