// One norm, plain or gated, as the definition says it, in any format: the reference of several
// tests. Sums are in Accum<T>, what is stored is rounded to T.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/block.h"
#include "tests/support/data.h"
#include "turbogr/ops/dense/dropout_mask.h"
#include "turbogr/ops/dense/gated_norm.h"

namespace turbogr::test {

struct NormCase {
  std::int64_t rows, cols;
  ops::NormKind kind;
  bool affine = false;
  bool gated = false;
  bool concat = false;
  bool silu_gate = false;
  ops::DropoutOptions dropout;
  bool concat_input = false;

  std::int64_t out_cols() const { return concat ? 3 * cols : cols; }
};

inline constexpr double kNormStart = 0.25;  // what parameter gradients are added to

template <class T>
struct NormInputs {
  Tensor x, gate, weight, bias, dy;

  explicit NormInputs(const NormCase& c, double scale = 1)
      : x(random_tensor<T>({c.rows, c.cols}, 1, scale)),
        gate(random_tensor<T>({c.rows, c.cols}, 2)),
        weight(random_tensor<Accum<T>>({c.cols}, 3)),
        bias(random_tensor<Accum<T>>({c.cols}, 4)),
        dy(random_tensor<T>({c.rows, c.out_cols()}, 5)) {}

  NormInputs<double> widened(const NormCase& c) const {
    NormInputs<double> out(c);
    out.x = converted<double, T>(x);
    out.gate = converted<double, T>(gate);
    out.weight = converted<double, Accum<T>>(weight);
    out.bias = converted<double, Accum<T>>(bias);
    out.dy = converted<double, T>(dy);
    return out;
  }
};

struct NormResults {
  Tensor y, mean, rstd, dx, dgate, dweight, dbias;
};

template <class A>
Tensor norm_start(std::int64_t cols) {
  Tensor tensor(dtype_of<A>(), {cols});
  for (std::int64_t c = 0; c < cols; ++c) tensor.view<A, 1>()(c) = static_cast<A>(kNormStart);
  return tensor;
}

template <class T>
NormResults plain_norm(const NormCase& c, const NormInputs<T>& in) {
  using A = Accum<T>;
  NormResults out = {Tensor(dtype_of<T>(), {c.rows, c.out_cols()}),
                     Tensor(dtype_of<A>(), {c.rows}),
                     Tensor(dtype_of<A>(), {c.rows}),
                     Tensor(dtype_of<T>(), {c.rows, c.cols}),
                     Tensor(dtype_of<T>(), {c.rows, c.cols}),
                     norm_start<A>(c.cols),
                     norm_start<A>(c.cols)};
  const auto dy = in.dy.template view<T, 2>();
  const auto y = out.y.template view<T, 2>();
  const A count = static_cast<A>(c.cols);
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const auto x = [&](std::int64_t i) { return convert<A>(in.x.template view<T, 2>()(r, i)); };
    const auto gate = [&](std::int64_t i) {
      return convert<A>(in.gate.template view<T, 2>()(r, i));
    };
    const auto u = [&](std::int64_t i) {
      return c.silu_gate ? gate(i) / (1 + std::exp(-gate(i))) : gate(i);
    };
    const auto gate_slope = [&](std::int64_t i) {
      const A s = 1 / (1 + std::exp(-gate(i)));
      return c.silu_gate ? s * (1 + gate(i) * (1 - s)) : A(1);
    };
    const auto w = [&](std::int64_t i) {
      return c.affine ? in.weight.template view<A, 1>()(i) : A(1);
    };
    const auto b = [&](std::int64_t i) {
      return c.affine ? in.bias.template view<A, 1>()(i) : A(0);
    };
    const ops::DropoutRow drop = ops::dropout_row(c.dropout, r);
    const auto factor = [&](std::int64_t i) { return static_cast<A>(drop.factor(i)); };
    A mean = 0;
    if (c.kind == ops::NormKind::kLayer) {
      for (std::int64_t i = 0; i < c.cols; ++i) mean += x(i);
      mean /= count;
    }
    A squares = 0;
    for (std::int64_t i = 0; i < c.cols; ++i) squares += (x(i) - mean) * (x(i) - mean);
    const A rstd = 1 / std::sqrt(squares / count + static_cast<A>(1e-6));
    out.mean.template view<A, 1>()(r) = mean;
    out.rstd.template view<A, 1>()(r) = rstd;
    std::vector<A> slope(static_cast<std::size_t>(c.cols));
    std::vector<A> past(slope.size());  // what reaches x past the norm
    A mean_slope = 0, along = 0;
    for (std::int64_t i = 0; i < c.cols; ++i) {
      const A hat = (x(i) - mean) * rstd;
      const A a = hat * w(i) + b(i);
      A d = convert<A>(dy(r, i));
      if (!c.gated) {
        y(r, i) = convert<T>(a);
      } else if (!c.concat) {
        y(r, i) = convert<T>(u(i) * a * factor(i));
        out.dgate.template view<T, 2>()(r, i) = convert<T>(d * factor(i) * a * gate_slope(i));
        d *= factor(i) * u(i);
      } else {
        const A middle = convert<A>(dy(r, c.cols + i)) * factor(c.cols + i);
        const A both = convert<A>(dy(r, 2 * c.cols + i)) * factor(2 * c.cols + i);
        y(r, i) = convert<T>(u(i) * factor(i));
        y(r, c.cols + i) = convert<T>((c.concat_input ? x(i) : a) * factor(c.cols + i));
        y(r, 2 * c.cols + i) = convert<T>(u(i) * a * factor(2 * c.cols + i));
        out.dgate.template view<T, 2>()(r, i) =
            convert<T>((d * factor(i) + both * a) * gate_slope(i));
        d = (c.concat_input ? A(0) : middle) + both * u(i);
        if (c.concat_input) past[static_cast<std::size_t>(i)] = middle;
      }
      out.dweight.template view<A, 1>()(i) += d * hat;
      out.dbias.template view<A, 1>()(i) += d;
      slope[static_cast<std::size_t>(i)] = d * w(i);
      mean_slope += d * w(i) / count;
      along += d * w(i) * hat / count;
    }
    if (c.kind == ops::NormKind::kRms) mean_slope = 0;
    for (std::int64_t i = 0; i < c.cols; ++i) {
      const A hat = (x(i) - mean) * rstd;
      out.dx.template view<T, 2>()(r, i) =
          convert<T>(rstd * (slope[static_cast<std::size_t>(i)] - mean_slope - hat * along) +
                     past[static_cast<std::size_t>(i)]);
    }
  }
  return out;
}

// The operators' own results, on strided buffers that start as NaN. dgate is empty where there is
// no gate.
template <class T>
NormResults run_norm(Context& ctx, const NormCase& c, const NormInputs<T>& in) {
  using A = Accum<T>;
  const Block<T> x(in.x), gate(in.gate), dy(in.dy);
  Block<T> y(c.rows, c.out_cols()), dx(c.rows, c.cols), dgate(c.rows, c.cols);
  NormResults out = {Tensor(),
                     Tensor(dtype_of<A>(), {c.rows}),
                     Tensor(dtype_of<A>(), {c.rows}),
                     Tensor(),
                     Tensor(),
                     norm_start<A>(c.cols),
                     norm_start<A>(c.cols)};
  poison<A>(out.rstd);
  ops::NormOptions<T> norm = {.kind = c.kind};
  if (c.affine) {
    norm.weight = in.weight.template view<A, 1>();
    norm.bias = in.bias.template view<A, 1>();
  }
  ops::NormStatistics<A> saved = {.rstd = out.rstd.template view<A, 1>()};
  if (c.kind == ops::NormKind::kLayer) {
    poison<A>(out.mean);
    saved.mean = out.mean.template view<A, 1>();
  }
  const ops::NormStatistics<const A> read = {saved.mean, saved.rstd};
  const auto dweight = out.dweight.template view<A, 1>(), dbias = out.dbias.template view<A, 1>();
  ctx.workspace().reserve(ops::gated_norm_workspace_bytes<T>(ctx, c.cols));
  if (c.gated) {
    const ops::GatedNormOptions<T> options = {norm, c.concat, c.silu_gate, c.dropout,
                                              c.concat_input};
    ops::gated_norm<T>(ctx, x.rows(), gate.rows(), options, y.rows(), saved);
    ops::gated_norm_backward<T>(ctx, x.rows(), gate.rows(), dy.rows(), options, read,
                                {dx.rows(), dgate.rows(), dweight, dbias});
    out.dgate = dgate.values();
  } else {
    ops::norm<T>(ctx, x.rows(), norm, y.rows(), saved);
    ops::norm_backward<T>(ctx, x.rows(), dy.rows(), norm, read, {dx.rows(), dweight, dbias});
  }
  out.y = y.values();
  out.dx = dx.values();
  EXPECT_EQ(ctx.workspace().used(), 0u);
  return out;
}

}  // namespace turbogr::test
