// Dropout, SiLU, SwiGLU, L2 normalisation and input rows on both devices, against double.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/combine_input_case.h"
#include "tests/support/on_device.h"
#include "turbogr/ops/dense/dropout.h"
#include "turbogr/ops/dense/dropout_mask.h"
#include "turbogr/ops/dense/l2_normalize.h"
#include "turbogr/ops/dense/silu.h"
#include "turbogr/ops/dense/swiglu.h"

namespace turbogr::ops {
namespace {

using test::Margins;
using test::Placed;
using test::random_tensor;

template <class T>
class CudaElementwise : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(CudaElementwise, Formats);

// Rows times columns, crooked and aligned, from one column to more than a block.
struct Shape {
  std::int64_t rows, cols;
  Margins margins;
};
const std::vector<Shape> kShapes = {{0, 5, test::kAligned},      {1, 1, test::kCrooked},
                                    {5, 7, test::kCrooked},      {3, 50, test::kCrooked},
                                    {9, 64, test::kAligned},     {4, 264, test::kAligned},
                                    {130, 1024, test::kAligned}, {3, 2000, test::kCrooked},
                                    {7, 3072, test::kAligned},   {3, 4096, test::kAligned}};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double slope(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }

// f(values of each input at one place) rounded to Out.
template <class Out, class Function>
Tensor mapped(const std::vector<const Tensor*>& inputs, Function&& function) {
  Tensor out(dtype_of<Out>(), inputs[0]->shape());
  for (std::int64_t i = 0; i < out.size(); ++i) {
    std::vector<double> values;
    for (const Tensor* input : inputs) values.push_back(test::element(*input, i));
    reinterpret_cast<Out*>(out.data())[i] = convert<Out>(static_cast<Accum<Out>>(function(values)));
  }
  return out;
}

template <class T, class Function>
::testing::AssertionResult close_to(const Tensor& fast, const std::vector<const Tensor*>& inputs,
                                    Function&& function) {
  return test::matches(fast, mapped<T>(inputs, function), mapped<double>(inputs, function));
}

TYPED_TEST(CudaElementwise, SiluAndSwigluFollowTheirFormulas) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  for (const Device device : test::devices()) {
    Context ctx({.device = device, .threads = 1});
    for (const Shape& s : kShapes) {
      SCOPED_TRACE(::testing::Message() << name_of(device) << " " << s.rows << "x" << s.cols);
      const Tensor a = random_tensor<T>({s.rows, s.cols}, 1, 3.0);
      const Tensor b = random_tensor<T>({s.rows, s.cols}, 2);
      const Tensor dy = random_tensor<T>({s.rows, s.cols}, 3);
      const Placed<T> pa(ctx, a, s.margins), pb(ctx, b, s.margins), pdy(ctx, dy, s.margins);
      Placed<T> y(ctx, s.rows, s.cols, s.margins), da(ctx, s.rows, s.cols, s.margins),
          db(ctx, s.rows, s.cols, s.margins);
      silu<T>(ctx, pa.rows(), y.rows());
      EXPECT_TRUE(close_to<T>(y.fetch(ctx), {&a}, [](auto v) { return v[0] * sigmoid(v[0]); }));
      silu_backward<T>(ctx, pa.rows(), pdy.rows(), y.rows());
      EXPECT_TRUE(close_to<T>(y.fetch(ctx), {&a, &dy}, [](auto v) { return v[1] * slope(v[0]); }));
      swiglu<T>(ctx, pa.rows(), pb.rows(), y.rows());
      EXPECT_TRUE(
          close_to<T>(y.fetch(ctx), {&a, &b}, [](auto v) { return v[0] * sigmoid(v[0]) * v[1]; }));
      swiglu_backward<T>(ctx, pa.rows(), pb.rows(), pdy.rows(), da.rows(), db.rows());
      EXPECT_TRUE(close_to<T>(da.fetch(ctx), {&a, &b, &dy},
                              [](auto v) { return v[2] * v[1] * slope(v[0]); }));
      EXPECT_TRUE(close_to<T>(db.fetch(ctx), {&a, &dy},
                              [](auto v) { return v[1] * v[0] * sigmoid(v[0]); }));
    }
  }
}

TYPED_TEST(CudaElementwise, DropoutHasTheHostsBits) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  Context gpu({.device = Device::kCuda});
  Context cpu({.threads = 1});
  for (const bool keyed : {false, true}) {
    for (const Shape& s : kShapes) {
      SCOPED_TRACE(::testing::Message() << s.rows << "x" << s.cols << " keyed " << keyed);
      const Tensor x = random_tensor<T>({s.rows, s.cols}, 1);
      std::vector<std::int64_t> keys;
      for (std::int64_t r = 0; r < s.rows; ++r) keys.push_back((r * 77 + 5) << 31);
      const Tensor host_keys = test::tensor_of(keys);
      const Tensor gpu_keys = test::place(gpu, host_keys);
      const auto run = [&](const Context& ctx, const Tensor& row_keys) {
        DropoutOptions options = {.rate = 0.3, .seed = 9, .site = (1ull << 39) + 3};
        if (keyed) {
          options.row_keys = {reinterpret_cast<const std::uint64_t*>(row_keys.data()), {s.rows}};
        }
        const Placed<T> in(ctx, x, s.margins);
        Placed<T> out(ctx, s.rows, s.cols, s.margins);
        dropout<T>(ctx, in.rows(), options, out.rows());
        return out.fetch(ctx);
      };
      EXPECT_TRUE(test::same_bits(run(gpu, gpu_keys), run(cpu, host_keys)));
    }
  }
}

TYPED_TEST(CudaElementwise, L2NormalizeFollowsItsFormula) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  using A = Accum<T>;
  for (const Device device : test::devices()) {
    Context ctx({.device = device, .threads = 1});
    for (const Shape& s : kShapes) {
      if (s.cols == 1) continue;  // a sign: its gradient is zero and only rounding is left
      SCOPED_TRACE(::testing::Message() << name_of(device) << " " << s.rows << "x" << s.cols);
      Tensor x = random_tensor<T>({s.rows, s.cols}, 1);
      if (s.rows > 1) {
        for (std::int64_t c = 0; c < s.cols; ++c) x.template view<T, 2>()(1, c) = convert<T>(1e-9f);
      }
      const Tensor dy = random_tensor<T>({s.rows, s.cols}, 2);
      const L2NormalizeOptions options = {.eps = 1e-6};
      const auto definition = [&]<class R, class Out>(R, Out, Tensor& y, Tensor& dx) {
        y = Tensor(dtype_of<Out>(), x.shape());
        dx = Tensor(dtype_of<Out>(), x.shape());
        for (std::int64_t r = 0; r < s.rows; ++r) {
          R squares = 0, along = 0;
          const auto at = [&](const Tensor& t, std::int64_t c) {
            return static_cast<R>(test::element(t, r * s.cols + c));
          };
          for (std::int64_t c = 0; c < s.cols; ++c) squares += at(x, c) * at(x, c);
          const R length = std::sqrt(squares);
          const R inverse = R(1) / std::max(length, static_cast<R>(options.eps));
          for (std::int64_t c = 0; c < s.cols; ++c) along += at(x, c) * at(dy, c);
          along *= length < static_cast<R>(options.eps) ? R(0) : inverse * inverse;
          for (std::int64_t c = 0; c < s.cols; ++c) {
            y.view<Out, 2>()(r, c) = convert<Out>(static_cast<Accum<Out>>(at(x, c) * inverse));
            dx.view<Out, 2>()(r, c) =
                convert<Out>(static_cast<Accum<Out>>((at(dy, c) - at(x, c) * along) * inverse));
          }
        }
      };
      Tensor plain_y, plain_dx, exact_y, exact_dx;
      definition(A{}, T{}, plain_y, plain_dx);
      definition(double{}, double{}, exact_y, exact_dx);
      const Placed<T> in(ctx, x, s.margins), din(ctx, dy, s.margins);
      Placed<T> y(ctx, s.rows, s.cols, s.margins), dx(ctx, s.rows, s.cols, s.margins);
      Tensor inverse(dtype_of<A>(), {s.rows}, device);
      l2_normalize<T>(ctx, in.rows(), options, y.rows(), inverse.view<A, 1>());
      l2_normalize_backward<T>(ctx, in.rows(), din.rows(), std::as_const(inverse).view<A, 1>(),
                               options, dx.rows());
      EXPECT_TRUE(test::matches(y.fetch(ctx), plain_y, exact_y));
      EXPECT_TRUE(test::matches(dx.fetch(ctx), plain_dx, exact_dx));
    }
  }
}

TYPED_TEST(CudaElementwise, InputRowsAndTheirGradients) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  using A = Accum<T>;
  const DropoutOptions dropout = {.rate = 0.25, .seed = 3, .site = 2};
  const std::vector<test::CombineCase> cases = {
      {{}, 4, 3, false, {}},
      {{1}, 1, 1, true, {}},
      {{3, 0, 5, 2}, 50, 6, true, dropout},
      {{40, 1, 0, 7, 40, 13, 2, 2, 9}, 64, 40, true, dropout},
      {{70, 33, 90}, 1032, 100, false, dropout}};
  for (const Device device : test::devices()) {
    Context ctx({.device = device, .threads = 1});
    for (const test::CombineCase& c : cases) {
      const Margins margins = c.cols % 8 == 0 ? test::kAligned : test::kCrooked;
      SCOPED_TRACE(::testing::Message() << name_of(device) << " " << c.rows() << "x" << c.cols);
      const test::CombineInputs<T> in(c);
      const test::CombineResults plain = test::plain_combine<T>(c, in);
      const test::CombineResults exact = test::plain_combine<double>(c, in.widened(c));
      const Tensor offsets = test::place(ctx, test::tensor_of(test::offsets_of(c.lengths)));
      const Offsets view = offsets.view<std::int64_t, 1>();
      const Placed<T> e(ctx, in.e, margins), extra(ctx, in.extra, margins), dx(ctx, in.dx, margins);
      const Tensor p = test::place(ctx, in.p);
      Placed<T> x(ctx, c.rows(), c.cols, margins), de(ctx, c.rows(), c.cols, margins),
          dextra(ctx, c.rows(), c.cols, margins);
      Tensor dp = test::place(ctx, test::combine_start<A>(c));
      CombineInputOptions<T> options = {.scale = test::kCombineScale, .dropout = c.dropout};
      if (c.extra) options.extra = extra.rows();
      combine_input<T>(ctx, {e.rows(), view}, p.view<T, 2>(), options, x.rows());
      combine_input_backward<T>(ctx, {dx.rows(), view}, options,
                                {de.rows(), dp.view<A, 2>(), dextra.rows()});
      EXPECT_TRUE(test::matches(x.fetch(ctx), plain.x, exact.x));
      EXPECT_TRUE(test::matches(de.fetch(ctx), plain.de, exact.de));
      EXPECT_TRUE(test::matches(dextra.fetch(ctx), plain.dextra, exact.dextra));
      EXPECT_TRUE(test::matches(to_host(ctx, dp), plain.dp, exact.dp));
      // Without the table's gradient another kernel runs.
      Placed<T> again(ctx, c.rows(), c.cols, margins);
      combine_input_backward<T>(ctx, {dx.rows(), view}, options, {.de = again.rows()});
      EXPECT_TRUE(test::same_bits(again.fetch(ctx), de.fetch(ctx)));
    }
  }
}

}  // namespace
}  // namespace turbogr::ops
