// Updates, conversions, sums, action rows and random starts on both devices.
#include "turbogr/ops/rows/update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/on_device.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/rows/action_rows.h"
#include "turbogr/ops/rows/random_rows.h"

namespace turbogr::ops {
namespace {

using test::Placed;
using test::random_tensor;

float* floats(Tensor& tensor) { return reinterpret_cast<float*>(tensor.data()); }

const AdamWSettings kSettings = {.rate = 0.01,
                                 .beta1 = 0.9,
                                 .beta2 = 0.98,
                                 .epsilon = 1e-8,
                                 .decay = 0.1,
                                 .step = 3,
                                 .gradient_scale = 0.5};

// Weights and moments of two slices after a step, what the scale was, the gradients after they were
// zeroed and the first slice's rounded weights.
struct StepOutcome {
  Tensor weight, first, second, small, scale, gradient, rounded;
};

bool rounds(const Tensor& rounded, const Tensor& weight) {
  for (std::int64_t i = 0; i < weight.size(); ++i) {
    const auto value = static_cast<float>(test::element(weight, i));
    if (test::element(rounded, i) != double{static_cast<float>(bf16(value))}) return false;
  }
  return true;
}

StepOutcome dense_step(const Context& ctx, double clip, bool bad) {
  constexpr std::int64_t kCount = 40001;  // more than two pieces, no multiple of a vector
  Tensor gradient = random_tensor<float>({kCount}, 1);
  if (bad) floats(gradient)[7] = std::numeric_limits<float>::infinity();
  Tensor g = test::place(ctx, gradient);
  Tensor w = test::place(ctx, random_tensor<float>({kCount}, 2));
  Tensor m = test::place(ctx, random_tensor<float>({kCount}, 3, 0.1));
  Tensor squares_before = random_tensor<float>({kCount}, 4);
  for (std::int64_t i = 0; i < kCount; ++i) {
    floats(squares_before)[i] = std::abs(floats(squares_before)[i]) + 0.1f;
  }
  Tensor v = test::place(ctx, squares_before);
  Tensor small = test::place(ctx, random_tensor<float>({5}, 5));
  Tensor sm(DType::kF32, {5}, ctx.device()), sv(DType::kF32, {5}, ctx.device());
  float* gradients = floats(g);
  Tensor rounded(DType::kBf16, {kCount}, ctx.device());
  const UpdateSlices slices(ctx, {{floats(w), gradients, floats(m), floats(v), kCount, 1,
                                   reinterpret_cast<bf16*>(rounded.data())},
                                  {floats(small), gradients + 1, floats(sm), floats(sv), 5, 0}});
  ctx.workspace().reserve(squared_sum_workspace_bytes(ctx, slices) +
                          squared_sum_workspace_bytes(ctx, kCount));
  Tensor squares(DType::kF64, {2}, ctx.device()), scale(DType::kF64, {4}, ctx.device());
  const Tensor losses = test::place(ctx, test::tensor_of(std::vector<double>{3.0, 4.0}));
  double* sums = squares.view<double, 1>().data;
  squared_sum(ctx, slices, sums);
  squared_sum(ctx, g.view<float, 1>(), sums + 1);
  auto* step = reinterpret_cast<StepScale*>(scale.data());
  make_step_scale(ctx, {sums, {2}}, losses.view<double, 1>(), {.clip = clip, .loss_weight = 0.5},
                  step);
  adamw(ctx, slices, kSettings, step);
  zero_gradients(ctx, slices);
  return {to_host(ctx, w),     to_host(ctx, m), to_host(ctx, v),      to_host(ctx, small),
          to_host(ctx, scale), to_host(ctx, g), to_host(ctx, rounded)};
}

TEST(CudaUpdate, DenseStepsAgreeAndStopWhenNotFinite) {
  TGR_SKIP_WITHOUT_GPU();
  const Context cpu({.threads = 1}), gpu({.device = Device::kCuda});
  for (const double clip : {0.0, 1.0, 1e9}) {
    const StepOutcome host = dense_step(cpu, clip, false), device = dense_step(gpu, clip, false);
    EXPECT_LT(test::max_error(device.weight, host.weight), 1e-6);
    EXPECT_LT(test::max_error(device.first, host.first), 1e-6);
    EXPECT_LT(test::max_error(device.second, host.second), 1e-6);
    EXPECT_LT(test::max_error(device.small, host.small), 1e-6);
    EXPECT_TRUE(rounds(device.rounded, device.weight));
    EXPECT_TRUE(rounds(host.rounded, host.weight));
    EXPECT_TRUE(test::same_bits(device.gradient, Tensor(DType::kF32, {40001})));
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(test::element(device.scale, i) / test::element(host.scale, i), 1, 1e-6) << i;
    }
    EXPECT_EQ(test::element(device.scale, 1), 1);
    EXPECT_EQ(test::element(device.scale, 3), 3.5);
    EXPECT_GT(test::max_error(device.weight, random_tensor<float>({40001}, 2)), 1e-4);
  }
  const StepOutcome stopped = dense_step(gpu, 1.0, true);
  EXPECT_EQ(test::element(stopped.scale, 1), 0);
  EXPECT_TRUE(test::same_bits(stopped.weight, random_tensor<float>({40001}, 2)));
  EXPECT_TRUE(test::same_bits(stopped.small, random_tensor<float>({5}, 5)));
  EXPECT_TRUE(test::same_bits(stopped.rounded, Tensor(DType::kBf16, {40001})));
}

void expect_rows_agree(RowOptimiser optimiser, const AdamWSettings& settings) {
  for (const std::int64_t width : {7, 64, 1024}) {
    SCOPED_TRACE(::testing::Message() << static_cast<int>(optimiser) << " width " << width);
    Tensor weights[2], seconds[2];
    for (const Device device : test::devices()) {
      const Context ctx({.device = device, .threads = 1});
      Tensor w = test::place(ctx, random_tensor<float>({20, width}, 1));
      Tensor m(DType::kF32, {20, width}, device), v(DType::kF32, {20, width}, device);
      const Tensor g = test::place(ctx, random_tensor<float>({3, width}, 2));
      const Tensor ids = test::place(ctx, test::tensor_of(std::vector<std::int64_t>{2, 0, 19}));
      const Tensor scale =
          test::place(ctx, test::tensor_of(std::vector<double>{0.25, 1.0, 0.0, 0.0}));
      const Tensor stop =
          test::place(ctx, test::tensor_of(std::vector<double>{1.0, 0.0, 0.0, 0.0}));
      TableRows table = {.weight = w.view<float, 2>(),
                         .first_moment = m.view<float, 2>(),
                         .second_moment = v.view<float, 2>()};
      if (optimiser == RowOptimiser::kAdaGrad) table.second_moment = {floats(v), {20, 1}};
      for (const Tensor* step : {&scale, &stop, static_cast<const Tensor*>(nullptr)}) {
        update_rows(ctx, optimiser, table, ids.view<std::int64_t, 1>(), g.view<float, 2>(),
                    settings,
                    step == nullptr ? nullptr : reinterpret_cast<const StepScale*>(step->data()));
      }
      weights[device == Device::kCuda] = to_host(ctx, w);
      seconds[device == Device::kCuda] = to_host(ctx, v);
    }
    EXPECT_LT(test::max_error(weights[1], weights[0]), 2e-6);
    EXPECT_LT(test::max_error(seconds[1], seconds[0]), 1e-6);
    EXPECT_GT(test::max_error(weights[1], random_tensor<float>({20, width}, 1)), 1e-4);
  }
}

TEST(CudaUpdate, RowsAgreeForEveryOptimiser) {
  TGR_SKIP_WITHOUT_GPU();
  for (const RowOptimiser optimiser :
       {RowOptimiser::kAdamW, RowOptimiser::kAdaGrad, RowOptimiser::kSgd}) {
    expect_rows_agree(optimiser, kSettings);
  }
  AdamWSettings in_gradient = kSettings;
  in_gradient.decay = 0.3;
  in_gradient.decay_in_gradient = true;
  expect_rows_agree(RowOptimiser::kAdaGrad, in_gradient);
}

// Rows 2 and 19 go to places 4 and 1 of a matrix of five, row 0 nowhere.
template <class T>
void check_copies(RowOptimiser optimiser, std::int64_t width, double finite, bool in_parts) {
  SCOPED_TRACE(::testing::Message() << static_cast<int>(optimiser) << " width " << width);
  for (const Device device : test::devices()) {
    const Context ctx({.device = device, .threads = 1});
    // A GPU's table may be in the host's memory.
    const Device home = device == Device::kCuda ? Device::kPinned : Device::kCpu;
    Tensor w(DType::kF32, {20, width}, home), m(DType::kF32, {20, width}, home),
        v(DType::kF32, {20, width}, home);
    copy_tensor(ctx, w, random_tensor<float>({20, width}, 1));
    const Tensor g = test::place(ctx, random_tensor<float>({3, width}, 2));
    const Tensor ids = test::place(ctx, test::tensor_of(std::vector<std::int64_t>{2, 0, 19}));
    const Tensor places = test::place(ctx, test::tensor_of(std::vector<std::int32_t>{4, -1, 1}));
    const Tensor scale =
        test::place(ctx, test::tensor_of(std::vector<double>{0.25, finite, 0.0, 0.0}));
    TableRows table = {.weight = w.view<float, 2>(),
                       .first_moment = m.view<float, 2>(),
                       .second_moment = v.view<float, 2>()};
    if (optimiser == RowOptimiser::kAdaGrad) table.second_moment = {floats(v), {20, 1}};
    const test::Margins margins = width % 8 == 0 ? test::kAligned : test::kCrooked;
    const Tensor before = random_tensor<T>({5, width}, 3);
    Placed<T> copies(ctx, before, margins);
    const Tensor which = test::place(ctx, test::tensor_of(std::vector<std::int32_t>{2, 0, 1}));
    const std::int32_t* order = which.view<std::int32_t, 1>().data;
    std::vector<RowPart> parts = {{}};
    if (in_parts) parts = {{{order, {1}}, true}, {{order + 1, {2}}, false}};
    for (const RowPart& part : parts) {
      update_rows<T>(ctx, optimiser, table, ids.view<std::int64_t, 1>(), g.view<float, 2>(),
                     kSettings, reinterpret_cast<const StepScale*>(scale.data()),
                     {places.view<std::int32_t, 1>(), copies.rows()}, part);
    }
    const Tensor got = copies.fetch(ctx), weights = to_host(ctx, w);
    for (std::int64_t r = 0; r < 5; ++r) {
      const std::int64_t row = r == 4 ? 2 : r == 1 ? 19 : -1;
      for (std::int64_t c = 0; c < width; ++c) {
        const double want = row < 0 ? test::element(before, r * width + c)
                                    : convert<double>(convert<T>(weights.view<float, 2>()(row, c)));
        ASSERT_EQ(test::element(got, r * width + c), want) << "row " << r << " column " << c;
      }
    }
    EXPECT_EQ(test::same_bits(weights, random_tensor<float>({20, width}, 1)), finite == 0);
  }
}

TEST(CudaUpdate, CopiesRowsAsTheyAreAfterwards) {
  for (const RowOptimiser optimiser :
       {RowOptimiser::kAdamW, RowOptimiser::kAdaGrad, RowOptimiser::kSgd}) {
    for (const std::int64_t width : {7, 12, 64, 1024}) {
      for (const double finite : {0.0, 1.0}) {
        for (const bool in_parts : {false, true}) {
          check_copies<float>(optimiser, width, finite, in_parts);
          check_copies<bf16>(optimiser, width, finite, in_parts);
        }
      }
    }
  }
}

// The GPU draws the host's chances: weights are the host's, but where f32 differs in its last bits
// on the two, and then they are neighbours.
template <class Half>
void expect_rounded_as_on_the_host(const AdamWSettings& settings = kSettings) {
  const Context gpu({.device = Device::kCuda}), cpu({.threads = 2});
  for (const RowOptimiser optimiser :
       {RowOptimiser::kAdamW, RowOptimiser::kAdaGrad, RowOptimiser::kSgd}) {
    for (const std::int64_t width : {3, 8, 60, 1024}) {
      constexpr std::int64_t kRows = 40;
      std::vector<std::int64_t> ids = {39, 0, 7, 12, 31};
      const Tensor host_ids = test::tensor_of(ids);
      const Tensor g = random_tensor<float>({5, width}, 2);
      const ops::RowKeys keys = {.first = 3, .stride = 5, .seed = 11};
      const auto updated = [&](const Context& ctx) {
        Tensor w = test::place(ctx, random_tensor<Half>({kRows, width}, 1));
        Tensor m = test::place(ctx, test::random_tensor<float>({kRows, width}, 3));
        Tensor v = test::place(ctx, Tensor(DType::kF32, {kRows, width}));
        TableRows table = {.keys = keys};
        if constexpr (std::is_same_v<Half, bf16>) {
          table.weight_bf16 = w.view<bf16, 2>();
        } else {
          table.weight_f16 = w.view<f16, 2>();
        }
        table.first_moment = m.view<float, 2>();
        table.second_moment = v.view<float, 2>();
        if (optimiser == RowOptimiser::kAdaGrad) {
          table.second_moment = {v.view<float, 2>().data, {kRows, 1}};
        }
        const Tensor placed = test::place(ctx, host_ids), gradient = test::place(ctx, g);
        update_rows(ctx, optimiser, table, placed.view<std::int64_t, 1>(),
                    gradient.view<float, 2>(), settings, nullptr);
        return to_host(ctx, w);
      };
      const Tensor there = updated(gpu), here = updated(cpu);
      std::int64_t differ = 0;
      for (std::int64_t i = 0; i < here.size(); ++i) {
        const int a = reinterpret_cast<const Half*>(there.data())[i].bits;
        const int b = reinterpret_cast<const Half*>(here.data())[i].bits;
        ASSERT_LE(std::abs(a - b), 1) << i;
        differ += a != b;
      }
      EXPECT_LE(differ, 1 + here.size() / 500) << width;
      EXPECT_FALSE(test::same_bits(here, random_tensor<Half>({kRows, width}, 1)));
    }
  }
}

TEST(CudaUpdate, TablesInBf16AreRoundedAsTheHostsAre) {
  TGR_SKIP_WITHOUT_GPU();
  expect_rounded_as_on_the_host<bf16>();
  AdamWSettings in_gradient = kSettings;
  in_gradient.decay = 0.3;
  in_gradient.decay_in_gradient = true;
  expect_rounded_as_on_the_host<bf16>(in_gradient);
}
TEST(CudaUpdate, TablesInF16AreRoundedAsTheHostsAre) {
  TGR_SKIP_WITHOUT_GPU();
  expect_rounded_as_on_the_host<f16>();
}

TEST(CudaUpdate, ARowOutsideTheTableIsLeftOut) {
  TGR_SKIP_WITHOUT_GPU();
  const Context ctx({.device = Device::kCuda});
  Tensor w = test::place(ctx, random_tensor<float>({4, 8}, 1));
  const Tensor g = test::place(ctx, random_tensor<float>({2, 8}, 2));
  const Tensor ids = test::place(ctx, test::tensor_of(std::vector<std::int64_t>{4, -1}));
  update_rows(ctx, RowOptimiser::kSgd, {.weight = w.view<float, 2>()}, ids.view<std::int64_t, 1>(),
              g.view<float, 2>(), kSettings, nullptr);
  EXPECT_TRUE(test::same_bits(to_host(ctx, w), random_tensor<float>({4, 8}, 1)));
}

template <class To, class From>
void check_convert(std::int64_t count) {
  const Tensor from = random_tensor<From>({count}, 1);
  const Context ctx({.device = Device::kCuda});
  const Tensor placed = test::place(ctx, from);
  Tensor to(dtype_of<To>(), {count}, Device::kCuda);
  convert_values<To, From>(ctx, placed.view<From, 1>(), to.view<To, 1>());
  EXPECT_TRUE(test::same_bits(to_host(ctx, to), test::converted<To, From>(from)));
}

TEST(CudaConvert, HasTheHostsBits) {
  TGR_SKIP_WITHOUT_GPU();
  for (const std::int64_t count : {0, 1, 8, 1003, 100000}) {
    check_convert<bf16, float>(count);
    check_convert<float, bf16>(count);
    check_convert<float, float>(count);
    check_convert<float, double>(count);
    check_convert<bf16, double>(count);
    check_convert<double, bf16>(count);
    check_convert<float, f16>(count);
    check_convert<bf16, f16>(count);
  }
}

TEST(CudaConvert, FillsSumsAndMeasuresRows) {
  TGR_SKIP_WITHOUT_GPU();
  const Context ctx({.device = Device::kCuda});
  for (const std::int64_t count : {0, 1, 5000, 100001}) {
    const Tensor values = random_tensor<float>({count}, 1);
    double want = 0;
    for (std::int64_t i = 0; i < count; ++i) want += test::element(values, i);
    const Tensor placed = test::place(ctx, values);
    ctx.workspace().reserve(sum_values_workspace_bytes(ctx, count));
    Tensor sum(DType::kF64, {1}, Device::kCuda);
    sum_values<float>(ctx, placed.view<float, 1>(), sum.view<double, 1>().data);
    EXPECT_NEAR(test::element(to_host(ctx, sum), 0), want, 1e-9 * static_cast<double>(count));
    Tensor filled(DType::kF32, {count}, Device::kCuda);
    fill<float>(ctx, 2.5f, filled.view<float, 1>());
    for (const float value : test::vector_of<float>(ctx, filled)) ASSERT_EQ(value, 2.5f);
  }
  for (const std::int64_t cols : {7, 1024}) {
    const Tensor x = random_tensor<bf16>({9, cols}, 2);
    const Placed<bf16> placed(ctx, x, cols % 8 == 0 ? test::kAligned : test::kCrooked);
    Tensor inverse(DType::kF32, {9}, Device::kCuda);
    inverse_norms<bf16>(ctx, placed.rows(), 1e-6, inverse.view<float, 1>());
    for (std::int64_t r = 0; r < 9; ++r) {
      double squares = 0;
      for (std::int64_t c = 0; c < cols; ++c)
        squares += std::pow(test::element(x, r * cols + c), 2);
      EXPECT_NEAR(test::element(to_host(ctx, inverse), r) * std::sqrt(squares), 1, 1e-6);
    }
  }
}

template <class T>
void check_actions(std::int64_t tokens, std::int64_t width) {
  using A = Accum<T>;
  SCOPED_TRACE(::testing::Message() << tokens << "x" << width);
  constexpr std::int64_t kActions = 6;
  std::vector<std::int32_t> masks;
  PhiloxStream random(4);
  for (std::int64_t i = 0; i < tokens; ++i) {
    masks.push_back(static_cast<std::int32_t>(random.below(1u << kActions)));
  }
  const test::Margins margins = width % 8 == 0 ? test::kAligned : test::kCrooked;
  Tensor rows[2], gradients[2];
  for (const Device device : test::devices()) {
    const Context ctx({.device = device, .threads = 1});
    ctx.workspace().reserve(action_rows_workspace_bytes<T>(ctx, tokens, kActions, width));
    const Tensor table = test::place(ctx, random_tensor<A>({kActions, width}, 1));
    const Tensor bits = test::place(ctx, test::tensor_of(masks));
    const View<const std::uint32_t, 1> view = {reinterpret_cast<const std::uint32_t*>(bits.data()),
                                               {tokens}};
    Placed<T> out(ctx, tokens, width, margins);
    action_rows<T>(ctx, table.view<A, 2>(), view, out.rows());
    const Placed<T> drows(ctx, random_tensor<T>({tokens, width}, 2), margins);
    Tensor dtable = test::place(ctx, random_tensor<A>({kActions, width}, 3));
    action_rows_backward<T>(ctx, drows.rows(), view, dtable.view<A, 2>());
    rows[device == Device::kCuda] = out.fetch(ctx);
    gradients[device == Device::kCuda] = to_host(ctx, dtable);
  }
  EXPECT_TRUE(test::same_bits(rows[1], rows[0]));
  EXPECT_LT(test::max_error(gradients[1], gradients[0]),
            (std::is_same_v<A, double> ? 1e-12 : 1e-5) * (1 + test::max_magnitude(gradients[0])));
}

TEST(CudaActionRows, AgreeWithTheHost) {
  TGR_SKIP_WITHOUT_GPU();
  for (const std::int64_t width : {7, 64, 1024}) {
    check_actions<double>(50, width);
    check_actions<float>(700, width);
    check_actions<bf16>(700, width);
    check_actions<bf16>(0, width);
  }
}

TEST(CudaRandomRows, StartLikeTheHosts) {
  TGR_SKIP_WITHOUT_GPU();
  for (const RowStart start : {RowStart(0.02), RowStart::uniform(0.02)}) {
    for (const std::int64_t width : {50, 51}) {
      Tensor rows[2];
      for (const Device device : test::devices()) {
        const Context ctx({.device = device, .threads = 1});
        Tensor table(DType::kF32, {130, width}, device);
        random_rows(ctx, table.view<float, 2>(), 3, 11, start);
        rows[device == Device::kCuda] = to_host(ctx, table);
      }
      EXPECT_LT(test::max_error(rows[1], rows[0]), 1e-8);
      EXPECT_EQ(test::element(rows[1], 3 * width - 1), 0.0);  // before the first row
      EXPECT_NE(test::element(rows[1], 3 * width), 0.0);
    }
  }
}

}  // namespace
}  // namespace turbogr::ops
