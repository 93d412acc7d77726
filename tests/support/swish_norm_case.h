// swish_norm as the definition says it, in any format, and as the operator does it.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/block.h"
#include "tests/support/data.h"
#include "tests/support/norm_case.h"
#include "turbogr/ops/dense/swish_norm.h"

namespace turbogr::test {

inline constexpr double kSwishEps = 1e-5;

// x, weight, bias and dy as NormInputs has them; the gate is not used.
template <class T>
NormResults plain_swish_norm(const NormCase& c, const NormInputs<T>& in) {
  using A = Accum<T>;
  NormResults out = {Tensor(dtype_of<T>(), {c.rows, c.cols}),
                     Tensor(dtype_of<A>(), {c.rows}),
                     Tensor(dtype_of<A>(), {c.rows}),
                     Tensor(dtype_of<T>(), {c.rows, c.cols}),
                     Tensor(),
                     norm_start<A>(c.cols),
                     norm_start<A>(c.cols)};
  const A count = static_cast<A>(c.cols);
  const auto weight = in.weight.template view<A, 1>(), bias = in.bias.template view<A, 1>();
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const auto x = [&](std::int64_t i) { return convert<A>(in.x.template view<T, 2>()(r, i)); };
    A mean = 0, squares = 0;
    for (std::int64_t i = 0; i < c.cols; ++i) mean += x(i) / count;
    for (std::int64_t i = 0; i < c.cols; ++i) squares += (x(i) - mean) * (x(i) - mean);
    const A rstd = 1 / std::sqrt(squares / count + static_cast<A>(kSwishEps));
    out.mean.template view<A, 1>()(r) = mean;
    out.rstd.template view<A, 1>()(r) = rstd;
    std::vector<A> slope, past;
    A mean_slope = 0, along = 0;
    for (std::int64_t i = 0; i < c.cols; ++i) {
      const A hat = (x(i) - mean) * rstd;
      const A s = 1 / (1 + std::exp(-(hat * weight(i) + bias(i))));
      const A dy = convert<A>(in.dy.template view<T, 2>()(r, i));
      const A d = dy * x(i) * s * (1 - s);
      out.y.template view<T, 2>()(r, i) = convert<T>(x(i) * s);
      out.dweight.template view<A, 1>()(i) += d * hat;
      out.dbias.template view<A, 1>()(i) += d;
      slope.push_back(d * weight(i));
      past.push_back(dy * s);
      mean_slope += slope.back() / count;
      along += slope.back() * hat / count;
    }
    for (std::int64_t i = 0; i < c.cols; ++i) {
      const A hat = (x(i) - mean) * rstd;
      const auto at = static_cast<std::size_t>(i);
      out.dx.template view<T, 2>()(r, i) =
          convert<T>(rstd * (slope[at] - mean_slope - hat * along) + past[at]);
    }
  }
  return out;
}

template <class T>
NormResults run_swish_norm(Context& ctx, const NormCase& c, const NormInputs<T>& in) {
  using A = Accum<T>;
  const Block<T> x(in.x), dy(in.dy);
  Block<T> y(c.rows, c.cols), dx(c.rows, c.cols);
  NormResults out = {Tensor(),
                     Tensor(dtype_of<A>(), {c.rows}),
                     Tensor(dtype_of<A>(), {c.rows}),
                     Tensor(),
                     Tensor(),
                     norm_start<A>(c.cols),
                     norm_start<A>(c.cols)};
  const ops::NormOptions<T> options = {.eps = kSwishEps,
                                       .weight = in.weight.template view<A, 1>(),
                                       .bias = in.bias.template view<A, 1>()};
  const ops::NormStatistics<A> saved = {out.mean.template view<A, 1>(),
                                        out.rstd.template view<A, 1>()};
  ctx.workspace().reserve(ops::swish_norm_workspace_bytes<T>(ctx, c.cols));
  ops::swish_norm<T>(ctx, x.rows(), options, y.rows(), saved);
  ops::swish_norm_backward<T>(
      ctx, x.rows(), dy.rows(), options, {saved.mean, saved.rstd},
      {dx.rows(), out.dweight.template view<A, 1>(), out.dbias.template view<A, 1>()});
  out.y = y.values();
  out.dx = dx.values();
  EXPECT_EQ(ctx.workspace().used(), 0u);
  return out;
}

}  // namespace turbogr::test
