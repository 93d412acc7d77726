// combine_input as the definition says it, in any format, and as the operator does it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/support/block.h"
#include "tests/support/data.h"
#include "turbogr/ops/dense/dropout_mask.h"
#include "turbogr/ops/rows/combine_input.h"

namespace turbogr::test {

struct CombineCase {
  std::vector<std::int64_t> lengths;
  std::int64_t cols, positions;
  bool extra;
  ops::DropoutOptions dropout;

  std::int64_t rows() const { return offsets_of(lengths).back(); }
};

inline constexpr double kCombineStart = 0.5;  // what dp is added to
inline constexpr double kCombineScale = 3.5;

template <class T>
struct CombineInputs {
  Tensor e, p, extra, dx;

  explicit CombineInputs(const CombineCase& c)
      : e(random_tensor<T>({c.rows(), c.cols}, 1)),
        p(random_tensor<T>({c.positions, c.cols}, 2)),
        extra(random_tensor<T>({c.rows(), c.cols}, 3)),
        dx(random_tensor<T>({c.rows(), c.cols}, 4)) {}

  CombineInputs<double> widened(const CombineCase& c) const {
    CombineInputs<double> out(c);
    out.e = converted<double, T>(e);
    out.p = converted<double, T>(p);
    out.extra = converted<double, T>(extra);
    out.dx = converted<double, T>(dx);
    return out;
  }
};

struct CombineResults {
  Tensor x, de, dp, dextra;
};

template <class A>
Tensor combine_start(const CombineCase& c) {
  Tensor dp(dtype_of<A>(), {c.positions, c.cols});
  std::fill_n(dp.view<A, 2>().data, dp.size(), static_cast<A>(kCombineStart));
  return dp;
}

template <class T>
CombineResults plain_combine(const CombineCase& c, const CombineInputs<T>& in) {
  using A = Accum<T>;
  const std::vector<std::int64_t> shape = {c.rows(), c.cols};
  CombineResults out = {Tensor(dtype_of<T>(), shape), Tensor(dtype_of<T>(), shape),
                        combine_start<A>(c), Tensor(dtype_of<T>(), shape)};
  const auto at = [](const Tensor& t, std::int64_t r, std::int64_t i) {
    return convert<A>(t.view<T, 2>()(r, i));
  };
  std::int64_t r = 0;
  for (const std::int64_t length : c.lengths) {
    for (std::int64_t s = 0; s < length; ++s, ++r) {
      const ops::DropoutRow drop = ops::dropout_row(c.dropout, r);
      for (std::int64_t i = 0; i < c.cols; ++i) {
        const A factor = static_cast<A>(drop.factor(i));
        A value = static_cast<A>(kCombineScale) * at(in.e, r, i) + at(in.p, s, i);
        if (c.extra) value += at(in.extra, r, i);
        const A d = at(in.dx, r, i) * factor;
        out.x.view<T, 2>()(r, i) = convert<T>(value * factor);
        out.de.view<T, 2>()(r, i) = convert<T>(d * static_cast<A>(kCombineScale));
        out.dp.view<A, 2>()(s, i) += d;
        out.dextra.view<T, 2>()(r, i) = convert<T>(d);
      }
    }
  }
  return out;
}

template <class T>
CombineResults run_combine(const Context& ctx, const CombineCase& c, const CombineInputs<T>& in) {
  using A = Accum<T>;
  const std::vector<std::int64_t> offsets = offsets_of(c.lengths);
  const Block<T> e(in.e), extra(in.extra), dx(in.dx);
  Block<T> x(c.rows(), c.cols), de(c.rows(), c.cols), dextra(c.rows(), c.cols);
  CombineResults out;
  out.dp = combine_start<A>(c);
  ops::CombineInputOptions<T> options = {.scale = kCombineScale, .dropout = c.dropout};
  if (c.extra) options.extra = extra.rows();
  ops::combine_input<T>(ctx, {e.rows(), view_of(offsets)}, in.p.template view<T, 2>(), options,
                        x.rows());
  ops::combine_input_backward<T>(ctx, {dx.rows(), view_of(offsets)}, options,
                                 {de.rows(), out.dp.view<A, 2>(), dextra.rows()});
  out.x = x.values();
  out.de = de.values();
  out.dextra = dextra.values();
  return out;
}

}  // namespace turbogr::test
