// AdamW over dense slices and the three row optimisers of the item table, against the formulas in
// double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/messages.h"
#include "tests/support/simd_levels.h"
#include "turbogr/core/philox.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/embedding/sharding.h"
#include "turbogr/ops/rows/update.h"

namespace turbogr {
namespace {

using embedding::ItemTable;
using embedding::SparseOptimiser;
using test::message_of;
using test::random_tensor;

float* floats(Tensor& tensor) { return reinterpret_cast<float*>(tensor.data()); }

struct AdamState {
  double w, m, v;
};

AdamState adamw_reference(AdamState s, double g, double rate, double decay, int step) {
  s.m = 0.9 * s.m + 0.1 * g;
  s.v = 0.98 * s.v + 0.02 * g * g;
  const double m = s.m / (1 - std::pow(0.9, step));
  const double v = s.v / (1 - std::pow(0.98, step));
  s.w -= rate * (m / (std::sqrt(v) + 1e-8) + decay * s.w);
  return s;
}

TEST(AdamW, FollowsTheFormulaOverSeveralStepsAndSlices) {
  for (const SimdLevel simd : test::simd_levels()) {
    const Context ctx({.threads = 2, .simd = simd});
    constexpr std::int64_t kCount = 40001;  // more than a piece, no multiple of a vector
    Tensor w = random_tensor<float>({kCount}, 1);
    Tensor small = random_tensor<float>({3}, 2);
    Tensor m(DType::kF32, {kCount}), v(DType::kF32, {kCount}), sm(DType::kF32, {3}),
        sv(DType::kF32, {3});
    std::vector<AdamState> want(kCount);
    for (std::int64_t i = 0; i < kCount; ++i)
      want[static_cast<std::size_t>(i)] = {floats(w)[i], 0, 0};
    AdamState want_small = {floats(small)[2], 0, 0};
    for (int step = 1; step <= 3; ++step) {
      Tensor g = random_tensor<float>({kCount}, 10 + static_cast<std::uint64_t>(step));
      const ops::UpdateSlices slices(ctx,
                                     {{floats(w), floats(g), floats(m), floats(v), kCount, 1},
                                      {floats(small), floats(g), floats(sm), floats(sv), 3, 0}});
      // Half of the scale comes with the settings, half from the step.
      const ops::StepScale scale = {.scale = 0.25, .finite = 1, .norm = 0, .loss = 0};
      ops::adamw(ctx, slices,
                 {.rate = 0.01, .decay = 0.1, .step = double(step), .gradient_scale = 2}, &scale);
      for (std::int64_t i = 0; i < kCount; ++i) {
        auto& s = want[static_cast<std::size_t>(i)];
        s = adamw_reference(s, 0.5 * floats(g)[i], 0.01, 0.1, step);
      }
      want_small = adamw_reference(want_small, 0.5 * floats(g)[2], 0.01, 0, step);
    }
    for (std::int64_t i = 0; i < kCount; i += 1 + i % 7) {
      ASSERT_NEAR(floats(w)[i], want[static_cast<std::size_t>(i)].w, 2e-5) << i;
    }
    ASSERT_NEAR(floats(w)[kCount - 1], want[kCount - 1].w, 2e-5);
    EXPECT_NEAR(floats(small)[2], want_small.w, 2e-5) << "no decay where the slice says so";
  }
}

TEST(AdamW, KeepsRoundedWeightsAndZeroesGradients) {
  constexpr std::int64_t kCount = 40001;  // more than two pieces, no multiple of a vector
  const Context ctx({.threads = 2});
  Tensor w = random_tensor<float>({kCount}, 1), g = random_tensor<float>({kCount}, 2);
  Tensor small = random_tensor<float>({3}, 3);
  Tensor m(DType::kF32, {kCount}), v(DType::kF32, {kCount}), sm(DType::kF32, {3}),
      sv(DType::kF32, {3}), rounded(DType::kBf16, {kCount});
  Tensor sg = random_tensor<float>({4}, 4);
  const float kept = floats(sg)[3];
  const ops::UpdateSlices slices(ctx, {{floats(w), floats(g), floats(m), floats(v), kCount, 1,
                                        reinterpret_cast<bf16*>(rounded.data())},
                                       {floats(small), floats(sg), floats(sm), floats(sv), 3}});
  ops::adamw(ctx, slices, {.rate = 0.01}, nullptr);
  const View<bf16, 1> copies = rounded.view<bf16, 1>();
  for (std::int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(copies(i).bits, bf16(floats(w)[i]).bits) << i;
  }
  ops::zero_gradients(ctx, slices);
  for (std::int64_t i = 0; i < kCount; ++i) ASSERT_EQ(floats(g)[i], 0) << i;
  EXPECT_EQ(floats(sg)[2], 0);
  EXPECT_EQ(floats(sg)[3], kept) << "past the slice";
}

TEST(AdamW, SquaredNormIsExactEnoughThreadIndependentAndShowsNonFiniteValues) {
  Tensor g = random_tensor<float>({100003}, 5);
  double want = 0;
  for (std::int64_t i = 0; i < g.size(); ++i)
    want += static_cast<double>(floats(g)[i]) * floats(g)[i];
  std::vector<double> got;
  for (const int threads : {1, 2, 3}) {
    const Context ctx({.threads = threads, .workspace_bytes = 4096});
    const ops::UpdateSlices slices(ctx, {{nullptr, floats(g), nullptr, nullptr, g.size(), 1}});
    double of_slices = 0, of_values = 0;
    ops::squared_sum(ctx, slices, &of_slices);
    ops::squared_sum(ctx, std::as_const(g).view<float, 1>(), &of_values);
    EXPECT_EQ(of_slices, of_values);
    got.push_back(of_slices);
  }
  EXPECT_NEAR(got[0] / want, 1.0, 1e-6);
  EXPECT_EQ(got[0], got[1]);
  EXPECT_EQ(got[0], got[2]);
  floats(g)[777] = std::numeric_limits<float>::quiet_NaN();
  const Context ctx({.threads = 1, .workspace_bytes = 4096});
  double squares = 0;
  ops::squared_sum(ctx, std::as_const(g).view<float, 1>(), &squares);
  EXPECT_FALSE(std::isfinite(squares));
}

TEST(StepScale, ClipsTheNormAndHoldsBackWhatIsNotFinite) {
  const Context ctx({.threads = 1});
  const std::vector<double> squares = {9, 16}, losses = {6, 4};
  ops::StepScale scale;
  ops::make_step_scale(ctx, {squares.data(), {2}}, {losses.data(), {2}},
                       {.clip = 2, .loss_weight = 0.1}, &scale);
  EXPECT_DOUBLE_EQ(scale.norm, 5);
  EXPECT_DOUBLE_EQ(scale.scale, 0.4);
  EXPECT_DOUBLE_EQ(scale.loss, 1);
  EXPECT_EQ(scale.finite, 1);
  ops::make_step_scale(ctx, {squares.data(), {2}}, {losses.data(), {0}}, {.clip = 6}, &scale);
  EXPECT_EQ(scale.scale, 1) << "shorter than the clip";

  const std::vector<double> bad = {1, std::numeric_limits<double>::infinity()};
  ops::make_step_scale(ctx, {bad.data(), {2}}, {losses.data(), {2}}, {}, &scale);
  EXPECT_EQ(scale.finite, 0);
  Tensor w = random_tensor<float>({7}, 1), g = random_tensor<float>({7}, 2);
  Tensor m(DType::kF32, {7}), v(DType::kF32, {7});
  const float before = floats(w)[3];
  const ops::UpdateSlices slices(ctx, {{floats(w), floats(g), floats(m), floats(v), 7}});
  ops::adamw(ctx, slices, {}, &scale);
  EXPECT_EQ(floats(w)[3], before);
  EXPECT_EQ(floats(m)[3], 0);
  scale.finite = 1;
  ops::adamw(ctx, slices, {}, &scale);
  EXPECT_NE(floats(w)[3], before);
}

TEST(ItemTable, StartsEachRowFromItsOwnIndexWithinTwoDeviations) {
  const Context ctx({.threads = 2});
  ItemTable small(10, 6, SparseOptimiser::kSgd);
  ItemTable large(100, 6, SparseOptimiser::kSgd);
  small.initialise(ctx, 3, 0.02);
  large.initialise(ctx, 3, 0.02);
  EXPECT_EQ(std::memcmp(small.weights().data, large.weights().data, 60 * sizeof(float)), 0);
  double squares = 0;
  for (std::int64_t i = 0; i < 600; ++i) {
    EXPECT_LE(std::abs(large.weights().data[i]), 0.04f);
    squares += std::pow(large.weights().data[i] / 0.02, 2);
  }
  EXPECT_NEAR(squares / 600, 0.774, 0.12);  // variance of a normal cut at two deviations
}

class RowOptimiser : public ::testing::TestWithParam<SparseOptimiser> {};

TEST_P(RowOptimiser, ChangesTouchedRowsByTheFormulaAndNoOthers) {
  for (const SimdLevel simd : test::simd_levels()) {
    const Context ctx({.threads = 2, .simd = simd});
    constexpr std::int64_t kWidth = 19;
    ItemTable table(8, kWidth, GetParam());
    table.initialise(ctx, 1, 0.5);
    std::vector<double> w(8 * kWidth), m(8 * kWidth), v(8 * kWidth);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = table.weights().data[i];
    const std::vector<std::int64_t> ids = {1, 6};
    for (int step = 1; step <= 2; ++step) {
      const Tensor g = random_tensor<float>({2, kWidth}, 20 + static_cast<std::uint64_t>(step));
      const AdamWSettings options = {
          .rate = 0.1, .epsilon = 1e-8, .decay = 0.01, .step = double(step), .gradient_scale = 2};
      table.update(ctx, {ids.data(), {2}}, g.view<float, 2>(), options);
      for (std::size_t r = 0; r < 2; ++r) {
        double mean_square = 0;
        const float* row = g.view<float, 2>().data + r * kWidth;
        for (std::int64_t c = 0; c < kWidth; ++c) mean_square += 4.0 * row[c] * row[c] / kWidth;
        const auto first = static_cast<std::size_t>(ids[r] * kWidth);
        v[first] += GetParam() == SparseOptimiser::kAdaGrad ? mean_square : 0;
        for (std::size_t c = 0; c < kWidth; ++c) {
          const double gradient = 2.0 * row[c];
          if (GetParam() == SparseOptimiser::kAdamW) {
            const AdamState s = adamw_reference({w[first + c], m[first + c], v[first + c]},
                                                gradient, 0.1, 0.01, step);
            w[first + c] = s.w;
            m[first + c] = s.m;
            v[first + c] = s.v;
          } else {
            const double size =
                GetParam() == SparseOptimiser::kSgd ? 0.1 : 0.1 / std::sqrt(v[first] + 1e-8);
            w[first + c] = w[first + c] * (1 - 0.1 * 0.01) - size * gradient;
          }
        }
      }
    }
    for (std::size_t i = 0; i < w.size(); ++i) {
      const bool touched = i / kWidth == 1 || i / kWidth == 6;
      EXPECT_NEAR(table.weights().data[i], w[i], touched ? 2e-6 : 0.0) << i;
    }
  }
}

// With an epsilon as large as the gradients the two forms are far apart.
TEST(RowAdaGrad, EpsilonStandsInsideTheRootOrOutside) {
  const Context ctx({.threads = 1});
  const std::vector<std::int64_t> ids = {2};
  const std::vector<float> gradient = {3, -1};
  for (const bool outside : {false, true}) {
    ItemTable table(4, 2, SparseOptimiser::kAdaGrad);
    for (int step = 1; step <= 2; ++step) {
      table.update(ctx, {ids.data(), {1}}, Rows<const float>(gradient.data(), 1, 2, 2),
                   {.rate = 0.1, .epsilon = 4, .epsilon_outside = outside});
    }
    const auto divisor = [&](double v) { return outside ? std::sqrt(v) + 4 : std::sqrt(v + 4); };
    const double size = 0.1 / divisor(5) + 0.1 / divisor(10);
    EXPECT_NEAR(table.weights()(2, 0), -3 * size, 1e-7);
    EXPECT_NEAR(table.weights()(2, 1), size, 1e-7);
    EXPECT_EQ(table.weights()(1, 0), 0);
  }
}

// g + decay w is squared, and then w' = (1 - mu decay) w - mu g with mu = rate / (sqrt(v) + eps).
TEST(RowAdaGrad, DecayMayBeAPartOfTheGradient) {
  const Context ctx({.threads = 1});
  const std::vector<std::int64_t> ids = {2};
  const std::vector<float> gradient = {3, -1, 0.5};
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const bool in_gradient : {false, true}) {
      ItemTable table(4, 3, SparseOptimiser::kAdaGrad, Device::kCpu, dtype);
      table.initialise(ctx, 1, 0.5);
      const auto row = [&] {
        Tensor got(DType::kF32, {1, 3});
        table.gather<float>(ctx, View<const std::int64_t, 1>{ids.data(), {1}},
                            Rows<float>(got.view<float, 2>()));
        const float* values = got.view<float, 2>().data;
        return std::vector<double>(values, values + 3);
      };
      double v = 0;
      for (int step = 1; step <= 2; ++step) {
        const std::vector<double> was = row();
        table.update(ctx, {ids.data(), {1}}, Rows<const float>(gradient.data(), 1, 3, 3),
                     {.rate = 0.1,
                      .epsilon = 0.5,
                      .decay = 2,
                      .step = double(step),
                      .gradient_scale = 2,
                      .epsilon_outside = true,
                      .decay_in_gradient = in_gradient});
        double squares = 0;
        for (std::size_t c = 0; c < 3; ++c) {
          const double slope = 2.0 * gradient[c] + (in_gradient ? 2 * was[c] : 0);
          squares += slope * slope;
        }
        v += squares / 3;
        const double mu = 0.1 / (std::sqrt(v) + 0.5);
        const std::vector<double> is = row();
        for (std::size_t c = 0; c < 3; ++c) {
          const double want = was[c] * (1 - (in_gradient ? mu : 0.1) * 2) - mu * 2.0 * gradient[c];
          EXPECT_NEAR(is[c], want, dtype == DType::kF32 ? 1e-6 : 1e-2);
        }
      }
      EXPECT_NEAR(reinterpret_cast<const float*>(table.second_moment().data())[2], v,
                  dtype == DType::kF32 ? 1e-5 : 0.1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RowOptimiser,
                         ::testing::Values(SparseOptimiser::kAdamW, SparseOptimiser::kAdaGrad,
                                           SparseOptimiser::kSgd));

TEST(ItemTable, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  ItemTable table(4, 2, SparseOptimiser::kSgd);
  const Tensor g(DType::kF32, {1, 2});
  const std::vector<std::int64_t> high = {4};
  EXPECT_EQ(message_of([&] {
              table.update(ctx, {high.data(), {1}}, g.view<float, 2>(), {});
            }),
            "item table update: id 4 at position 0; the table has 4 rows");
  const Tensor wide(DType::kF32, {1, 3});
  EXPECT_NE(message_of([&] {
              table.update(ctx, {high.data(), {1}}, wide.view<float, 2>(), {});
            }).find("gradient is [1, 3]; wanted [1, 2]"),
            std::string::npos);
  const std::vector<std::int32_t> places = {0, 1};
  Tensor copies(DType::kF32, {2, 2});
  EXPECT_EQ(message_of([&] {
              table.update<float>(ctx, {high.data(), {1}}, g.view<float, 2>(), {}, nullptr,
                                  {{places.data(), {2}}, copies.view<float, 2>()});
            }),
            "item table update: places has 2 elements; wanted 1");
  EXPECT_NE(message_of([] {
              embedding::sparse_optimiser_from_name("lamb");
            }).find("adamw, adagrad or sgd"),
            std::string::npos);
}

template <class Half>
class RoundedTable : public testing::Test {
 protected:
  // Between neighbours from 1/2 to 1.
  static constexpr double kDistance = std::is_same_v<Half, bf16> ? 0x1p-8 : 0x1p-11;
};
using HalfFormats = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(RoundedTable, HalfFormats);

// Every weight is one of the two next to what f32 would have, up as often as it is nearer to that.
TYPED_TEST(RoundedTable, IsRightOnAverageAndNeverFurtherThanANeighbour) {
  using Half = TypeParam;
  const Context ctx({.threads = 2});
  constexpr std::int64_t kRows = 2000, kWidth = 37;
  for (const embedding::SparseOptimiser optimiser :
       {embedding::SparseOptimiser::kAdamW, embedding::SparseOptimiser::kAdaGrad,
        embedding::SparseOptimiser::kSgd}) {
    embedding::ItemTable rounded(kRows, kWidth, optimiser, Device::kCpu, dtype_of<Half>());
    embedding::ItemTable exact(kRows, kWidth, optimiser);
    rounded.set_keys({.seed = 3});
    std::vector<std::int64_t> ids;
    Tensor gradient(DType::kF32, {kRows, kWidth});
    for (std::int64_t row = 0; row < kRows; ++row) {  // all rows alike: their chances differ
      ids.push_back(row);
      for (std::int64_t c = 0; c < kWidth; ++c) {
        const auto weight = Half(0.5f + 0.01f * static_cast<float>(c));
        rounded.weight_tensor().template view<Half, 2>()(row, c) = weight;
        exact.weight_tensor().view<float, 2>()(row, c) = static_cast<float>(weight);
        gradient.view<float, 2>()(row, c) = 0.3f + 0.1f * static_cast<float>(c % 5);
      }
    }
    AdamWSettings settings;
    settings.rate = 0.2 * this->kDistance;
    settings.step = 1;
    const Rows<const float> rows = gradient.view<float, 2>();
    rounded.update(ctx, {ids.data(), {kRows}}, rows, settings);
    exact.update(ctx, {ids.data(), {kRows}}, rows, settings);
    for (std::int64_t c = 0; c < kWidth; ++c) {
      const float wanted = exact.weights()(0, c);
      double mean = 0;
      for (std::int64_t row = 0; row < kRows; ++row) {
        const auto got =
            static_cast<float>(rounded.weight_tensor().template view<Half, 2>()(row, c));
        EXPECT_LT(std::abs(got - wanted), 2 * this->kDistance);
        mean += got / static_cast<double>(kRows);
      }
      // The standard error of a mean of kRows chances, four times.
      EXPECT_NEAR(mean, wanted, 4 * this->kDistance * 0.5 / std::sqrt(kRows)) << c;
    }
  }
}

// Equal gradients give equal bits, however rows are spread, and another seed others.
TYPED_TEST(RoundedTable, IsTheSameInAnyNumberOfParts) {
  using Half = TypeParam;
  const Context ctx({.threads = 2});
  constexpr std::int64_t kRows = 101, kWidth = 20;
  const auto gradient_of = [](std::int64_t id, std::int64_t c) {
    return 0.01f * static_cast<float>((id * 7 + c * 3) % 11 - 5);
  };
  // Three steps on the part `part`; weights by id.
  const auto train = [&](const embedding::Sharding& sharding, int part, std::uint64_t seed,
                         std::vector<std::uint16_t>& whole) {
    const std::int64_t rows = sharding.rows_of(part);
    embedding::ItemTable table(rows, kWidth, embedding::SparseOptimiser::kAdaGrad, Device::kCpu,
                               dtype_of<Half>());
    table.set_keys(sharding.keys_of(part, seed));
    std::vector<std::int64_t> ids;
    Tensor gradient(DType::kF32, {std::max<std::int64_t>(rows, 1), kWidth});
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t id = sharding.id_of(part, row);
      EXPECT_EQ(sharding.keys_of(part, seed).of(row), static_cast<std::uint64_t>(id));
      ids.push_back(row);
      for (std::int64_t c = 0; c < kWidth; ++c) {
        table.weight_tensor().template view<Half, 2>()(row, c) = Half(0.3f);
        gradient.view<float, 2>()(row, c) = gradient_of(id, c);
      }
    }
    AdamWSettings settings;
    settings.rate = 1e-3;
    for (settings.step = 1; settings.step <= 3; ++settings.step) {
      table.update(ctx, {ids.data(), {rows}},
                   Rows<const float>(gradient.view<float, 2>().data, rows, kWidth, kWidth),
                   settings);
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t c = 0; c < kWidth; ++c) {
        whole[static_cast<std::size_t>(sharding.id_of(part, row) * kWidth + c)] =
            table.weight_tensor().template view<Half, 2>()(row, c).bits;
      }
    }
  };
  const embedding::Sharding one(kRows, 1, embedding::Placement::kRoundRobin);
  std::vector<std::uint16_t> wanted(kRows * kWidth), other(kRows * kWidth);
  train(one, 0, 5, wanted);
  train(one, 0, 6, other);
  EXPECT_NE(wanted, other);
  for (const embedding::Placement placement :
       {embedding::Placement::kRoundRobin, embedding::Placement::kHash}) {
    for (const int parts : {1, 3, 8}) {
      std::vector<std::uint16_t> whole(kRows * kWidth);
      for (int part = 0; part < parts; ++part) {
        train(embedding::Sharding(kRows, parts, placement), part, 5, whole);
      }
      EXPECT_EQ(whole, wanted) << parts;
    }
  }
}

// What a weight may become: the two f16 next to it, in proportion, down to the smallest; 0, the
// largest and what is not finite stay what they are.
TEST(RoundedByChance, F16IsFairEverywhere) {
  for (const float x : {1.0f / 3, -2.71828f, 60000.7f, 3e-5f, -1e-6f, 1.3e-7f, 2e-8f, 65519.0f}) {
    const f16 nearest(x);
    const auto at = static_cast<double>(static_cast<float>(nearest));
    double mean = 0;
    for (std::uint32_t chance = 0; chance < 0x10000u; ++chance) {
      f16 got;
      got.bits = static_cast<std::uint16_t>(ops::f16_by_chance(x, chance));
      mean += static_cast<double>(static_cast<float>(got)) / 0x10000;
      ASSERT_LE(std::abs(int{got.bits} - int{nearest.bits}), 1) << x << " " << chance;
    }
    const double step = std::max(0x1p-24, std::abs(at) * 0x1p-10);
    if (std::abs(x) < 65504) {
      EXPECT_NEAR(mean, x, step * 0x1p-12);
    } else {
      EXPECT_EQ(mean, 65504);
    }
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::uint32_t chance : {0u, 0x8000u, 0xffffu}) {
    for (const float x : {0.0f, -0.0f, 1.0f, -65504.0f, 0x1p-24f, -0x1p-14f, kInfinity, -kInfinity,
                          std::numeric_limits<float>::quiet_NaN()}) {
      EXPECT_EQ(ops::f16_by_chance(x, chance), f16(x).bits) << x;
    }
    EXPECT_EQ(ops::f16_by_chance(1e30f, chance), 0x7bffu);
    EXPECT_EQ(ops::f16_by_chance(-1e-30f, chance), 0x8000u);
  }
}

}  // namespace
}  // namespace turbogr
