#include "turbogr/ops/dense/norm.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/messages.h"
#include "tests/support/norm_case.h"
#include "tests/support/simd_levels.h"
#include "tests/support/tolerance.h"
#include "turbogr/ops/dense/gated_norm.h"

namespace turbogr::ops {
namespace {

using test::matches;
using test::message_of;
using test::NormCase;
using test::NormInputs;
using test::NormResults;

template <class T>
class NormOf : public ::testing::Test {
 protected:
  void check(const NormCase& c, double scale = 1) {
    const NormInputs<T> in(c, scale);
    const NormResults reference = test::plain_norm<double>(c, in.widened(c));
    const NormResults simple = test::plain_norm<T>(c, in);
    for (const SimdLevel simd : test::simd_levels()) {
      SCOPED_TRACE(::testing::Message()
                   << c.rows << "x" << c.cols << (c.kind == NormKind::kRms ? " rms " : " layer ")
                   << c.affine << c.gated << c.concat << " " << name_of(simd));
      Context ctx({.threads = 2, .simd = simd});
      const NormResults fast = test::run_norm<T>(ctx, c, in);
      EXPECT_TRUE(matches(fast.y, simple.y, reference.y));
      EXPECT_TRUE(matches(fast.mean, simple.mean, reference.mean));
      EXPECT_TRUE(matches(fast.rstd, simple.rstd, reference.rstd));
      EXPECT_TRUE(matches(fast.dx, simple.dx, reference.dx));
      if (c.gated) {
        EXPECT_TRUE(matches(fast.dgate, simple.dgate, reference.dgate));
      }
      EXPECT_TRUE(matches(fast.dweight, simple.dweight, reference.dweight));
      EXPECT_TRUE(matches(fast.dbias, simple.dbias, reference.dbias));
    }
  }
};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(NormOf, Formats);

TYPED_TEST(NormOf, MatchesTheDefinitionAtEveryWidthAndInstructionSet) {
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    for (const bool affine : {false, true}) {
      for (const std::int64_t cols : {1, 7, 16, 50, 129, 300}) {
        this->check({.rows = 5, .cols = cols, .kind = kind, .affine = affine});
      }
    }
    this->check({.rows = 2200, .cols = 20, .kind = kind, .affine = true});  // many parts
    this->check({.rows = 0, .cols = 20, .kind = kind, .affine = true});
  }
}

TYPED_TEST(NormOf, GatesAndDropsAtEveryWidthAndInstructionSet) {
  const DropoutOptions dropout = {.rate = 0.3, .seed = 8, .site = 5};
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    for (const bool concat : {false, true}) {
      for (const std::int64_t cols : {1, 7, 50, 129, 300}) {
        this->check({.rows = 5,
                     .cols = cols,
                     .kind = kind,
                     .affine = cols == 50,
                     .gated = true,
                     .concat = concat,
                     .silu_gate = cols % 2 == 0,
                     .dropout = dropout});
      }
      for (const bool silu_gate : {false, true}) {
        this->check({.rows = 3,
                     .cols = 33,
                     .kind = kind,
                     .gated = true,
                     .concat = concat,
                     .silu_gate = silu_gate});
      }
    }
  }
}

TYPED_TEST(NormOf, PutsTheInputItselfInTheMiddle) {
  for (const std::int64_t cols : {1, 7, 50, 129}) {
    this->check({.rows = 5,
                 .cols = cols,
                 .kind = NormKind::kLayer,
                 .affine = cols != 7,
                 .gated = true,
                 .concat = true,
                 .silu_gate = cols != 50,
                 .dropout = {.rate = cols == 1 ? 0.0 : 0.3, .seed = 8, .site = 5},
                 .concat_input = true});
  }
}

TEST(Norm, KeepsSmallAndConstantRowsFinite) {
  Context ctx({.threads = 1});
  const NormCase c = {.rows = 2, .cols = 40, .kind = NormKind::kLayer};
  NormInputs<float> in(c, 1e-6);
  for (std::int64_t i = 0; i < 40; ++i) in.x.view<float, 2>()(1, i) = 3.0f;
  const NormResults out = test::run_norm<float>(ctx, c, in);
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(test::element(out.y, 40 + i), 0.0);
  EXPECT_TRUE(std::isfinite(test::max_magnitude(out.dx)));
  EXPECT_NEAR(test::element(out.rstd, 1), 1000.0, 1e-3);
}

TEST(Norm, WritesInPlace) {
  Context ctx({.threads = 1});
  ctx.workspace().reserve(norm_workspace_bytes<float>(ctx, 50));
  const Tensor x = test::random_tensor<float>({4, 50}, 1);
  Tensor apart(DType::kF32, {4, 50}), same = test::converted<float, float>(x);
  Tensor mean(DType::kF32, {4}), rstd(DType::kF32, {4});
  const NormStatistics<float> saved = {mean.view<float, 1>(), rstd.view<float, 1>()};
  norm<float>(ctx, x.view<float, 2>(), {}, apart.view<float, 2>(), saved);
  norm<float>(ctx, same.view<float, 2>(), {}, same.view<float, 2>(), saved);
  EXPECT_TRUE(test::same_bits(apart, same));
  const NormStatistics<const float> read = {saved.mean, saved.rstd};
  Tensor dx(DType::kF32, {4, 50}), dy = test::random_tensor<float>({4, 50}, 2);
  norm_backward<float>(ctx, x.view<float, 2>(), dy.view<float, 2>(), {}, read,
                       {.dx = dx.view<float, 2>()});
  norm_backward<float>(ctx, x.view<float, 2>(), dy.view<float, 2>(), {}, read,
                       {.dx = dy.view<float, 2>()});
  EXPECT_TRUE(test::same_bits(dx, dy));
}

TEST(Norm, AddsAResidualToTheInputsGradient) {
  for (const SimdLevel simd : test::simd_levels()) {
    Context ctx({.threads = 1, .simd = simd});
    ctx.workspace().reserve(norm_workspace_bytes<float>(ctx, 21));
    const Tensor x = test::random_tensor<float>({3, 21}, 1);
    const Tensor dy = test::random_tensor<float>({3, 21}, 2);
    const Tensor residual = test::random_tensor<float>({3, 21}, 3);
    Tensor y(DType::kF32, {3, 21}), plain(DType::kF32, {3, 21}), added(DType::kF32, {3, 21});
    Tensor mean(DType::kF32, {3}), rstd(DType::kF32, {3});
    const Tensor start = test::random_tensor<float>({21}, 4);
    Tensor sums = test::converted<float, float>(start);
    const NormStatistics<float> saved = {mean.view<float, 1>(), rstd.view<float, 1>()};
    norm<float>(ctx, x.view<float, 2>(), {}, y.view<float, 2>(), saved);
    const NormStatistics<const float> read = {saved.mean, saved.rstd};
    norm_backward<float>(ctx, x.view<float, 2>(), dy.view<float, 2>(), {}, read,
                         {.dx = plain.view<float, 2>()});
    norm_backward<float>(ctx, x.view<float, 2>(), dy.view<float, 2>(), {}, read,
                         {.dx = added.view<float, 2>(),
                          .residual = residual.view<float, 2>(),
                          .residual_sums = sums.view<float, 1>()});
    for (std::int64_t i = 0; i < 63; ++i) {
      EXPECT_NEAR(test::element(added, i), test::element(plain, i) + test::element(residual, i),
                  1e-6);
    }
    for (std::int64_t c = 0; c < 21; ++c) {
      double sum = test::element(start, c);
      for (std::int64_t r = 0; r < 3; ++r) sum += test::element(residual, r * 21 + c);
      EXPECT_NEAR(test::element(sums, c), sum, 1e-6);
    }
  }
}

// Sums over more rows and columns than are added at once, of a residual that dx overwrites.
TYPED_TEST(NormOf, SumsTheResidualBeforeItIsOverwritten) {
  using T = TypeParam;
  using A = Accum<T>;
  constexpr std::int64_t kRows = 300, kCols = 150;
  const Tensor x = test::random_tensor<T>({kRows, kCols}, 1),
               dy = test::random_tensor<T>({kRows, kCols}, 2);
  const Tensor residual = test::random_tensor<T>({kRows, kCols}, 3),
               start = test::random_tensor<A>({kCols}, 4);
  Tensor first;
  for (const int threads : {1, 3}) {
    Context ctx({.threads = threads});
    ctx.workspace().reserve(norm_workspace_bytes<T>(ctx, kCols));
    Tensor y(dtype_of<T>(), {kRows, kCols}), mean(dtype_of<A>(), {kRows}),
        rstd(dtype_of<A>(), {kRows});
    Tensor dx = test::converted<T, T>(residual), sums = test::converted<A, A>(start);
    const NormStatistics<A> saved = {mean.view<A, 1>(), rstd.view<A, 1>()};
    norm<T>(ctx, x.view<T, 2>(), {}, y.template view<T, 2>(), saved);
    norm_backward<T>(ctx, x.view<T, 2>(), dy.view<T, 2>(), {}, {saved.mean, saved.rstd},
                     {.dx = dx.template view<T, 2>(),
                      .residual = std::as_const(dx).template view<T, 2>(),
                      .residual_sums = sums.template view<A, 1>()});
    for (std::int64_t c = 0; c < kCols; ++c) {
      double sum = test::element(start, c);
      for (std::int64_t r = 0; r < kRows; ++r) sum += test::element(residual, r * kCols + c);
      EXPECT_NEAR(test::element(sums, c), sum, 1e-4);
    }
    if (threads == 1) {
      first = std::move(sums);
    } else {
      EXPECT_TRUE(test::same_bits(sums, first));
    }
  }
}

TEST(Norm, SaysWhatIsWrong) {
  const Context ctx({.threads = 1, .workspace_bytes = 1 << 20});
  Tensor x(DType::kF32, {2, 4}), wrong(DType::kF32, {2, 5}), none(DType::kF32, {2, 0});
  Tensor four(DType::kF32, {4}), two(DType::kF32, {2});
  const auto v = [](Tensor& t) { return t.view<float, 1>(); };
  const auto m = [](Tensor& t) { return Rows<float>(t.view<float, 2>()); };
  const auto forward = [&](Tensor& in, const NormOptions<float>& options, Tensor& y,
                           const NormStatistics<float>& saved) {
    return message_of([&] { norm<float>(ctx, m(in), options, m(y), saved); });
  };
  EXPECT_EQ(forward(x, {}, wrong, {v(two), v(two)}), "norm: y is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(forward(none, {}, none, {v(two), v(two)}),
            "norm: rows have no columns; a norm needs at least 1");
  EXPECT_EQ(forward(x, {.eps = 0}, x, {v(two), v(two)}), "norm: eps is 0; it must be above 0");
  EXPECT_EQ(forward(x, {.weight = v(two)}, x, {v(two), v(two)}),
            "norm: weight has 2 elements; wanted 4");
  EXPECT_EQ(forward(x, {.bias = v(two)}, x, {v(two), v(two)}),
            "norm: bias has 2 elements; wanted 4");
  EXPECT_EQ(forward(x, {}, x, {.rstd = v(two)}), "norm: mean has 0 elements; wanted 2");
  EXPECT_EQ(forward(x, {}, x, {.mean = v(two), .rstd = v(four)}),
            "norm: rstd has 4 elements; wanted 2");
  EXPECT_EQ(forward(x, {.kind = NormKind::kRms}, x, {.rstd = v(two)}), "");
  const auto backward = [&](Tensor& dy, const NormGradients<float>& gradients) {
    return message_of([&] {
      norm_backward<float>(ctx, m(x), m(dy), {}, {v(two), v(two)}, gradients);
    });
  };
  EXPECT_EQ(backward(wrong, {m(x)}), "norm_backward: dy is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(backward(x, {m(wrong)}), "norm_backward: dx is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(backward(x, {.dx = m(x), .dweight = v(two)}),
            "norm_backward: dweight has 2 elements; wanted 4");
  EXPECT_EQ(backward(x, {.dx = m(x), .dbias = v(two)}),
            "norm_backward: dbias has 2 elements; wanted 4");
  EXPECT_EQ(backward(x, {.dx = m(x), .residual_sums = v(four)}),
            "norm_backward: residual_sums without a residual; give both or neither");
  EXPECT_EQ(backward(x, {.dx = m(x), .residual = m(x), .residual_sums = v(two)}),
            "norm_backward: residual_sums has 2 elements; wanted 4");

  const auto gated = [&](Tensor& gate, const GatedNormOptions<float>& options, Tensor& y) {
    return message_of([&] {
      gated_norm<float>(ctx, m(x), m(gate), options, m(y), {v(two), v(two)});
    });
  };
  EXPECT_EQ(gated(wrong, {}, x), "gated_norm: gate is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(gated(x, {.concat = true}, wrong), "gated_norm: y is [2, 5]; wanted [2, 12]");
  EXPECT_EQ(gated(x, {.concat_input = true}, wrong),
            "gated_norm: concat_input without concat; it says what concat puts in the middle");
  EXPECT_EQ(gated(x, {.dropout = {.rate = 1}}, x),
            "gated_norm: dropout rate is 1; it must be at least 0 and below 1");
  const auto gated_back = [&](Tensor& dy, const GatedNormGradients<float>& gradients) {
    return message_of([&] {
      gated_norm_backward<float>(ctx, m(x), m(x), m(dy), {}, {v(two), v(two)}, gradients);
    });
  };
  EXPECT_EQ(gated_back(wrong, {m(x), m(x)}), "gated_norm_backward: dy is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(gated_back(x, {m(wrong), m(x)}), "gated_norm_backward: dx is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(gated_back(x, {m(x), m(wrong)}), "gated_norm_backward: dgate is [2, 5]; wanted [2, 4]");
  EXPECT_EQ(gated_back(x, {m(x), m(x), v(two)}),
            "gated_norm_backward: dweight has 2 elements; wanted 4");
  EXPECT_EQ(gated_back(x, {m(x), m(x), {}, v(two)}),
            "gated_norm_backward: dbias has 2 elements; wanted 4");
}

}  // namespace
}  // namespace turbogr::ops
