// Norms, plain and gated, on both devices, against double.
#include "turbogr/ops/dense/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/norm_case.h"
#include "tests/support/on_device.h"
#include "turbogr/ops/dense/gated_norm.h"

namespace turbogr::ops {
namespace {

using test::Margins;
using test::NormCase;
using test::NormInputs;
using test::NormResults;
using test::Placed;

template <class T>
NormResults run(const Context& ctx, const NormCase& c, const NormInputs<T>& in, Margins margins) {
  using A = Accum<T>;
  ctx.workspace().reserve(gated_norm_workspace_bytes<T>(ctx, c.cols));
  const Placed<T> x(ctx, in.x, margins), gate(ctx, in.gate, margins), dy(ctx, in.dy, margins);
  Placed<T> y(ctx, c.rows, c.out_cols(), margins), dx(ctx, c.rows, c.cols, margins),
      dgate(ctx, c.rows, c.cols, margins);
  const Tensor weight = test::place(ctx, in.weight), bias = test::place(ctx, in.bias);
  Tensor mean(dtype_of<A>(), {c.rows}, ctx.device()), rstd(dtype_of<A>(), {c.rows}, ctx.device());
  Tensor dweight = test::place(ctx, test::norm_start<A>(c.cols));
  Tensor dbias = test::place(ctx, test::norm_start<A>(c.cols));
  NormOptions<T> norm_options = {.kind = c.kind};
  if (c.affine) {
    norm_options.weight = weight.view<A, 1>();
    norm_options.bias = bias.view<A, 1>();
  }
  const NormStatistics<A> saved = {mean.view<A, 1>(), rstd.view<A, 1>()};
  const NormStatistics<const A> read = {saved.mean, saved.rstd};
  // Rows of 1024 without weights take other kernels where no weight's gradient is wanted.
  const bool weighs = c.affine || c.cols % 1024 != 0;
  const View<A, 1> to_weight = weighs ? dweight.view<A, 1>() : View<A, 1>{};
  const View<A, 1> to_bias = weighs ? dbias.view<A, 1>() : View<A, 1>{};
  if (c.gated) {
    const GatedNormOptions<T> options = {norm_options, c.concat, c.silu_gate, c.dropout,
                                         c.concat_input};
    gated_norm<T>(ctx, x.rows(), gate.rows(), options, y.rows(), saved);
    gated_norm_backward<T>(ctx, x.rows(), gate.rows(), dy.rows(), options, read,
                           {dx.rows(), dgate.rows(), to_weight, to_bias});
  } else {
    norm<T>(ctx, x.rows(), norm_options, y.rows(), saved);
    norm_backward<T>(ctx, x.rows(), dy.rows(), norm_options, read, {dx.rows(), to_weight, to_bias});
  }
  return {y.fetch(ctx),
          to_host(ctx, mean),
          to_host(ctx, rstd),
          dx.fetch(ctx),
          c.gated ? dgate.fetch(ctx) : Tensor(),
          to_host(ctx, dweight),
          to_host(ctx, dbias)};
}

template <class T>
class CudaNorm : public ::testing::Test {
 protected:
  void check(const NormCase& c) {
    const Margins margins = c.cols % 8 == 0 ? test::kAligned : test::kCrooked;
    const NormInputs<T> in(c);
    const NormResults exact = test::plain_norm<double>(c, in.widened(c));
    const NormResults plain = test::plain_norm<T>(c, in);
    for (const Device device : test::devices()) {
      SCOPED_TRACE(::testing::Message() << name_of(device) << " " << c.rows << "x" << c.cols
                                        << (c.kind == NormKind::kRms ? " rms " : " layer ")
                                        << c.affine << c.gated << c.concat << (c.dropout.rate > 0));
      Context ctx({.device = device, .threads = 1});
      const NormResults fast = run<T>(ctx, c, in, margins);
      EXPECT_TRUE(test::matches(fast.y, plain.y, exact.y));
      EXPECT_TRUE(test::matches(fast.mean, plain.mean, exact.mean));
      EXPECT_TRUE(test::matches(fast.rstd, plain.rstd, exact.rstd));
      EXPECT_TRUE(test::matches(fast.dx, plain.dx, exact.dx));
      if (c.gated) {
        EXPECT_TRUE(test::matches(fast.dgate, plain.dgate, exact.dgate));
      }
      if (c.affine || c.cols % 1024 != 0) {
        EXPECT_TRUE(test::matches(fast.dweight, plain.dweight, exact.dweight));
        EXPECT_TRUE(test::matches(fast.dbias, plain.dbias, exact.dbias));
      }
    }
  }
};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(CudaNorm, Formats);

TYPED_TEST(CudaNorm, MatchesTheDefinition) {
  TGR_SKIP_WITHOUT_GPU();
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    for (const bool affine : {false, true}) {
      for (const std::int64_t cols : {7, 50, 64, 264, 1024, 2048, 2500, 3072}) {
        this->check({.rows = 5, .cols = cols, .kind = kind, .affine = affine});
      }
    }
    this->check({.rows = 2300, .cols = 40, .kind = kind, .affine = true});  // more than all blocks
    this->check({.rows = 0, .cols = 20, .kind = kind, .affine = true});
  }
}

TYPED_TEST(CudaNorm, GatesAndDrops) {
  TGR_SKIP_WITHOUT_GPU();
  const DropoutOptions dropout = {.rate = 0.3, .seed = 8, .site = 5};
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    for (const bool concat : {false, true}) {
      for (const bool affine : {false, true}) {
        for (const std::int64_t cols : {3, 7, 50, 64, 520, 1024, 3072}) {
          this->check({.rows = 5,
                       .cols = cols,
                       .kind = kind,
                       .affine = affine,
                       .gated = true,
                       .concat = concat,
                       .silu_gate = affine,
                       .dropout = dropout});
        }
      }
      // The input itself in the middle.
      for (const std::int64_t cols : {7, 64, 512, 1024}) {
        if (!concat) break;
        this->check({.rows = 5,
                     .cols = cols,
                     .kind = kind,
                     .affine = cols != 1024,
                     .gated = true,
                     .concat = true,
                     .silu_gate = true,
                     .dropout = cols == 512 ? DropoutOptions{} : dropout,
                     .concat_input = true});
      }
      for (const bool silu_gate : {false, true}) {
        for (const std::int64_t cols : {33, 1024}) {
          this->check({.rows = 3,
                       .cols = cols,
                       .kind = kind,
                       .gated = true,
                       .concat = concat,
                       .silu_gate = silu_gate});
        }
      }
    }
  }
}

TYPED_TEST(CudaNorm, AddsAResidualInPlace) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  using A = Accum<T>;
  for (const std::int64_t cols : {21, 64, 1024, 2048}) {
    // 2200 rows of 1024: a block has several.
    const NormCase c = {.rows = cols == 1024 ? 2200 : 6, .cols = cols, .kind = NormKind::kLayer};
    const NormInputs<T> in(c);
    const Tensor residual = test::random_tensor<T>({c.rows, cols}, 9);
    Tensor results[2], sums[2];
    for (const Device device : test::devices()) {
      Context ctx({.device = device, .threads = 1});
      ctx.workspace().reserve(norm_workspace_bytes<T>(ctx, cols));
      const Margins margins = cols % 8 == 0 ? test::kAligned : test::kCrooked;
      const Placed<T> x(ctx, in.x, margins), dy(ctx, in.dy, margins);
      Placed<T> y(ctx, c.rows, cols, margins), dx(ctx, residual, margins);
      Tensor mean(dtype_of<A>(), {c.rows}, device), rstd(dtype_of<A>(), {c.rows}, device);
      Tensor to_sums = test::place(ctx, test::norm_start<A>(cols));
      const NormStatistics<A> saved = {mean.view<A, 1>(), rstd.view<A, 1>()};
      norm<T>(ctx, x.rows(), {}, y.rows(), saved);
      norm_backward<T>(
          ctx, x.rows(), dy.rows(), {}, {saved.mean, saved.rstd},
          {.dx = dx.rows(), .residual = dx.rows(), .residual_sums = to_sums.template view<A, 1>()});
      results[device == Device::kCuda] = dx.fetch(ctx);
      sums[device == Device::kCuda] = to_host(ctx, to_sums);
    }
    const double unit = std::is_same_v<T, bf16> ? 0x1p-7 : std::is_same_v<T, float> ? 1e-6 : 1e-13;
    EXPECT_LT(test::max_error(results[1], results[0]), 4 * unit);
    const double rounding = std::is_same_v<T, double> ? 1e-13 : 1e-5;
    EXPECT_LT(test::max_error(sums[1], sums[0]), rounding * std::sqrt(static_cast<double>(c.rows)));
  }
}

}  // namespace
}  // namespace turbogr::ops
