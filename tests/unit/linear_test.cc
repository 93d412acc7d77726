#include "turbogr/ops/dense/linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/block.h"
#include "tests/support/data.h"
#include "tests/support/messages.h"
#include "tests/support/simd_levels.h"
#include "tests/support/tolerance.h"

namespace turbogr::ops {
namespace {

using test::Block;
using test::converted;
using test::matches;
using test::message_of;
using test::random_tensor;

struct Case {
  std::int64_t rows, inputs, outputs;
  Activation activation;
  bool bias, residual;
};

// Everything one forward and backward pass makes. Parameter gradients start at `start`.
struct Results {
  Tensor y, z, dx, dw, db;
};
constexpr double kStart = 0.5;

template <class T>
struct Inputs {
  Tensor x, w, bias, residual, dy;

  explicit Inputs(const Case& c)
      : x(random_tensor<T>({c.rows, c.inputs}, 1)),
        w(random_tensor<T>({c.inputs, c.outputs}, 2, 0.3)),
        bias(random_tensor<Accum<T>>({c.outputs}, 3)),
        residual(random_tensor<T>({c.rows, c.outputs}, 4)),
        dy(random_tensor<T>({c.rows, c.outputs}, 5)) {}
};

template <class T>
Tensor started(std::vector<std::int64_t> shape) {
  Tensor tensor(dtype_of<T>(), std::move(shape));
  T* data = reinterpret_cast<T*>(tensor.data());
  for (std::int64_t i = 0; i < tensor.size(); ++i) data[i] = static_cast<T>(kStart);
  return tensor;
}

template <class T>
Results run(const SimdLevel simd, const Case& c, const Inputs<T>& in, bool strided) {
  using A = Accum<T>;
  Context ctx({.threads = 2, .simd = simd});
  PackedWeight<T> weight(ctx, c.inputs, c.outputs);
  const std::size_t bytes = std::max(linear_workspace_bytes(ctx, weight),
                                     linear_backward_workspace_bytes(ctx, weight, c.rows));
  ctx.workspace().reserve(bytes);
  weight.pack(ctx, in.w.template view<T, 2>());

  const Block<T> x(in.x), residual(in.residual), dy(in.dy);
  Block<T> y(c.rows, c.outputs), z(c.rows, c.outputs), dx(c.rows, c.inputs);
  Results out = {Tensor(), Tensor(), Tensor(), started<A>({c.inputs, c.outputs}),
                 started<A>({c.outputs})};
  const auto pick = [&](const Block<T>& block, const Tensor& dense) {
    return strided ? block.rows() : Rows<const T>(dense.template view<T, 2>());
  };
  LinearOptions<T> options = {.activation = c.activation};
  if (c.bias) options.bias = in.bias.template view<A, 1>();
  if (c.residual) options.residual = pick(residual, in.residual);
  linear<T>(ctx, pick(x, in.x), weight, options, y.rows(), z.rows());
  out.y = y.values();
  out.z = z.values();
  // Without an activation z is not needed, and must not be read.
  LinearBackwardOptions<T> back = {.activation = c.activation};
  if (c.activation != Activation::kNone) back.z = z.rows();
  linear_backward<T>(ctx, pick(x, in.x), weight, pick(dy, in.dy), back,
                     {dx.rows(), out.dw.template view<A, 2>(), out.db.template view<A, 1>()});
  out.dx = dx.values();
  EXPECT_EQ(ctx.workspace().used(), 0u);
  return out;
}

// The definition, in T with sums in Accum<T>.
template <class T>
Results plain(const Case& c, const Inputs<T>& in) {
  using A = Accum<T>;
  Results out = {Tensor(dtype_of<T>(), {c.rows, c.outputs}),
                 Tensor(dtype_of<T>(), {c.rows, c.outputs}),
                 Tensor(dtype_of<T>(), {c.rows, c.inputs}), started<A>({c.inputs, c.outputs}),
                 started<A>({c.outputs})};
  const auto x = in.x.template view<T, 2>(), w = in.w.template view<T, 2>();
  const auto residual = in.residual.template view<T, 2>(), dy = in.dy.template view<T, 2>();
  Tensor dz(dtype_of<T>(), {c.rows, c.outputs});
  for (std::int64_t r = 0; r < c.rows; ++r) {
    for (std::int64_t n = 0; n < c.outputs; ++n) {
      A sum = c.bias ? in.bias.template view<A, 1>()(n) : A(0);
      for (std::int64_t k = 0; k < c.inputs; ++k) sum += convert<A>(x(r, k)) * convert<A>(w(k, n));
      out.z.template view<T, 2>()(r, n) = convert<T>(sum);
      const bool silu = c.activation == Activation::kSilu;
      A value = silu ? sum / (1 + std::exp(-sum)) : sum;
      if (c.residual) value += convert<A>(residual(r, n));
      out.y.template view<T, 2>()(r, n) = convert<T>(value);
      const A kept = convert<A>(convert<T>(sum));
      const A s = 1 / (1 + std::exp(-kept));
      const A slope = silu ? s * (1 + kept * (1 - s)) : A(1);
      const A g = convert<A>(dy(r, n)) * slope;
      dz.template view<T, 2>()(r, n) = convert<T>(g);
      out.db.template view<A, 1>()(n) += g;
      for (std::int64_t k = 0; k < c.inputs; ++k) {
        out.dw.template view<A, 2>()(k, n) += convert<A>(x(r, k)) * convert<A>(convert<T>(g));
      }
    }
    for (std::int64_t k = 0; k < c.inputs; ++k) {
      A sum = 0;
      for (std::int64_t n = 0; n < c.outputs; ++n) {
        sum += convert<A>(dz.template view<T, 2>()(r, n)) * convert<A>(w(k, n));
      }
      out.dx.template view<T, 2>()(r, k) = convert<T>(sum);
    }
  }
  return out;
}

template <class T>
Inputs<double> widened(const Case& c, const Inputs<T>& in) {
  Inputs<double> out(c);
  out.x = converted<double, T>(in.x);
  out.w = converted<double, T>(in.w);
  out.bias = converted<double, Accum<T>>(in.bias);
  out.residual = converted<double, T>(in.residual);
  out.dy = converted<double, T>(in.dy);
  return out;
}

template <class T>
class LinearOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(LinearOf, Formats);

TYPED_TEST(LinearOf, MatchesTheDefinitionAtEveryShapeAndInstructionSet) {
  using T = TypeParam;
  const Case cases[] = {
      {1, 1, 1, Activation::kSilu, true, true},      {5, 50, 7, Activation::kNone, false, false},
      {16, 33, 64, Activation::kSilu, false, true},  {130, 20, 300, Activation::kSilu, true, false},
      {257, 17, 19, Activation::kNone, true, true},  {128, 64, 256, Activation::kNone, true, false},
      {70, 280, 530, Activation::kSilu, true, true}, {257, 190, 180, Activation::kNone, true, true},
  };
  for (const Case& c : cases) {
    const Inputs<T> in(c);
    const Results reference = plain<double>(c, widened<T>(c, in));
    const Results simple = plain<T>(c, in);
    for (const SimdLevel simd : test::simd_levels()) {
      for (const bool strided : {false, true}) {
        SCOPED_TRACE(::testing::Message() << c.rows << "x" << c.inputs << "x" << c.outputs << " "
                                          << name_of(simd) << (strided ? " strided" : " dense"));
        const Results fast = run<T>(simd, c, in, strided);
        EXPECT_TRUE(matches(fast.y, simple.y, reference.y));
        EXPECT_TRUE(matches(fast.z, simple.z, reference.z));
        EXPECT_TRUE(matches(fast.dx, simple.dx, reference.dx));
        EXPECT_TRUE(matches(fast.dw, simple.dw, reference.dw));
        EXPECT_TRUE(matches(fast.db, simple.db, reference.db));
      }
    }
  }
}

TEST(Linear, SumsMoreRowsThanOneBlockOfTheGradientHolds) {
  const Case cases[] = {{4096 + 1024 + 130, 3, 5, Activation::kSilu, true, false},
                        {2048 + 1024 + 130, 190, 180, Activation::kSilu, true, false}};
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.rows << "x" << c.inputs << "x" << c.outputs);
    const Inputs<float> in(c);
    const Results reference = plain<double>(c, widened<float>(c, in));
    const Results simple = plain<float>(c, in);
    const Results fast = run<float>(best_simd_level(), c, in, false);
    EXPECT_TRUE(matches(fast.dw, simple.dw, reference.dw));
    EXPECT_TRUE(matches(fast.db, simple.db, reference.db));
    EXPECT_TRUE(matches(fast.dx, simple.dx, reference.dx));
  }
}

TYPED_TEST(LinearOf, TakesAnEmptyBatchAndLeavesParameterGradientsAlone) {
  using T = TypeParam;
  const Case c = {0, 8, 4, Activation::kSilu, true, true};
  const Results out = run<T>(best_simd_level(), c, Inputs<T>(c), false);
  EXPECT_EQ(test::max_error(out.dw, started<Accum<T>>({8, 4})), 0);
}

TYPED_TEST(LinearOf, SkipsTheGradientsNotAskedFor) {
  using T = TypeParam;
  using A = Accum<T>;
  const Case c = {150, 9, 12, Activation::kNone, false, false};
  const Inputs<T> in(c);
  Context ctx({.threads = 2});
  PackedWeight<T> weight(ctx, c.inputs, c.outputs);
  ctx.workspace().reserve(linear_backward_workspace_bytes(ctx, weight, c.rows));
  weight.pack(ctx, in.w.template view<T, 2>());
  const Results all = run<T>(best_simd_level(), c, in, false);
  Tensor dx(dtype_of<T>(), {c.rows, c.inputs});
  Tensor dw = started<A>({c.inputs, c.outputs});
  const auto x = in.x.template view<T, 2>(), dy = in.dy.template view<T, 2>();
  linear_backward<T>(ctx, x, weight, dy, {}, {.dx = dx.view<T, 2>()});
  linear_backward<T>(ctx, x, weight, dy, {}, {.dw = dw.view<A, 2>()});
  EXPECT_TRUE(test::same_bits(dx, all.dx));
  EXPECT_TRUE(test::same_bits(dw, all.dw));
}

TEST(Linear, WritesOverItsResidual) {
  const Case c = {40, 24, 30, Activation::kSilu, true, true};
  const Inputs<float> in(c);
  const Results apart = run<float>(best_simd_level(), c, in, false);
  Context ctx({.threads = 2});
  PackedWeight<float> weight(ctx, 24, 30);
  ctx.workspace().reserve(linear_workspace_bytes(ctx, weight));
  weight.pack(ctx, in.w.view<float, 2>());
  Tensor y = converted<float, float>(in.residual);
  linear<float>(ctx, in.x.view<float, 2>(), weight,
                {.bias = in.bias.view<float, 1>(),
                 .activation = Activation::kSilu,
                 .residual = y.view<float, 2>()},
                y.view<float, 2>());
  EXPECT_TRUE(test::same_bits(y, apart.y));
}

TEST(Linear, SaysWhatIsWrong) {
  Context ctx({.threads = 1, .workspace_bytes = 1 << 20});
  EXPECT_EQ(message_of([&] { PackedWeight<float>(ctx, 0, 4); }),
            "linear: a weight of [0, 4]; both sizes must be at least 1");
  PackedWeight<float> weight(ctx, 3, 4);
  Tensor x(DType::kF32, {2, 3}), w(DType::kF32, {3, 4}), y(DType::kF32, {2, 4});
  Tensor wrong(DType::kF32, {2, 5}), vector(DType::kF32, {3});
  const auto forward = [&](const LinearOptions<float>& options, Rows<float> out,
                           Rows<float> z = {}) {
    return message_of([&] { linear<float>(ctx, x.view<float, 2>(), weight, options, out, z); });
  };
  EXPECT_EQ(forward({}, y.view<float, 2>()),
            "linear: the weight holds no values yet; call pack first");
  EXPECT_EQ(message_of([&] { weight.pack(ctx, x.view<float, 2>()); }),
            "linear: w is [2, 3]; wanted [3, 4]");
  weight.pack(ctx, w.view<float, 2>());
  EXPECT_EQ(forward({}, y.view<float, 2>()), "");
  EXPECT_EQ(forward({}, wrong.view<float, 2>()), "linear: y is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(forward({}, y.view<float, 2>(), wrong.view<float, 2>()),
            "linear: z is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(forward({.bias = vector.view<float, 1>()}, y.view<float, 2>()),
            "linear: bias has 3 elements; wanted 4");
  EXPECT_EQ(forward({.residual = wrong.view<float, 2>()}, y.view<float, 2>()),
            "linear: residual is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(
      message_of([&] { linear<float>(ctx, y.view<float, 2>(), weight, {}, y.view<float, 2>()); }),
      "linear: x is [2, 4]; wanted [2, 3]");
  const auto backward = [&](Rows<const float> dy, const LinearBackwardOptions<float>& options,
                            const LinearGradients<float>& gradients) {
    return message_of(
        [&] { linear_backward<float>(ctx, x.view<float, 2>(), weight, dy, options, gradients); });
  };
  EXPECT_EQ(backward(wrong.view<float, 2>(), {}, {}),
            "linear_backward: dy is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(backward(y.view<float, 2>(), {.activation = Activation::kSilu}, {}),
            "linear_backward: z is [0, 0]; wanted [2, 4]");
  EXPECT_EQ(backward(y.view<float, 2>(), {}, {.dx = wrong.view<float, 2>()}),
            "linear_backward: dx is [2, 5]; wanted [2, 3]");
  EXPECT_EQ(backward(y.view<float, 2>(), {}, {.dw = y.view<float, 2>()}),
            "linear_backward: dw is [2, 4]; wanted [3, 4]");
  EXPECT_EQ(backward(y.view<float, 2>(), {}, {.db = vector.view<float, 1>()}),
            "linear_backward: db has 3 elements; wanted 4");
  if (best_simd_level() > SimdLevel::kPortable) {
    Context other({.threads = 1, .simd = SimdLevel::kPortable});
    EXPECT_NE(message_of([&] {
                linear<float>(other, x.view<float, 2>(), weight, {}, y.view<float, 2>());
              }).find("and the context runs portable; make both from one context"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace turbogr::ops
