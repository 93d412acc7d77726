// One case of sampled or full softmax: inputs, a run of the operator, and a plain implementation in
// any arithmetic that the operator is measured against.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/tolerance.h"
#include "turbogr/ops/softmax/sampled_softmax.h"

namespace turbogr::test {

enum class Negatives { kOwn, kShared, kAll };

struct SoftmaxShape {
  std::int64_t tokens = 5;
  std::int64_t items = 9;
  std::int64_t width = 7;
  std::int64_t negatives = 4;
  Negatives kind = Negatives::kOwn;
  bool correction = false;
  double scale = 1.0;  // of query and items
  bool half = false;   // negatives from f16 rows
};

template <class T>
Tensor poisoned(std::vector<std::int64_t> shape) {
  Tensor tensor(dtype_of<T>(), std::move(shape));
  T* data = reinterpret_cast<T*>(tensor.data());
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    data[i] = convert<T>(std::numeric_limits<float>::quiet_NaN());
  }
  return tensor;
}

struct SoftmaxResult {
  Tensor loss, log_sum_exp, dquery, ditems;
};

template <class T>
struct SoftmaxCase {
  using A = Accum<T>;
  SoftmaxShape shape;
  ops::SoftmaxOptions options;
  Tensor query, items, correction, dloss, ditems_start;
  Tensor half_items, half_scale, read_items;  // f16, f32, and in f64 what the two stand for
  std::vector<std::int32_t> positive, negatives, order;

  explicit SoftmaxCase(const SoftmaxShape& shape_in, const ops::SoftmaxOptions& options_in = {},
                       std::uint64_t seed = 1)
      : shape(shape_in),
        options(options_in),
        query(random_tensor<T>({shape.tokens, shape.width}, seed, shape.scale)),
        items(random_tensor<T>({shape.items, shape.width}, seed + 1, shape.scale)),
        correction(random_tensor<A>({shape.items}, seed + 2)),
        dloss(random_tensor<A>({shape.tokens}, seed + 3)),
        ditems_start(random_tensor<A>({shape.items, shape.width}, seed + 4)) {
    PhiloxStream random(seed + 5);
    const auto row = [&] {
      return static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(shape.items)));
    };
    for (std::int64_t i = 0; i < shape.tokens; ++i) positive.push_back(row());
    const std::int64_t count = shape.negatives * (shape.kind == Negatives::kOwn ? shape.tokens : 1);
    for (std::int64_t i = 0; i < count; ++i) negatives.push_back(row());
    order.resize(positive.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    if (shape.half) make_half();
  }

  // From the items as they are now.
  void make_half() {
    half_items = Tensor(DType::kF16, items.shape());
    half_scale = Tensor(DType::kF32, {shape.items});
    read_items = Tensor(DType::kF64, items.shape());
    const auto values = half_items.view<f16, 2>();
    for (std::int64_t r = 0; r < shape.items; ++r) {
      float largest = 0;
      for (std::int64_t c = 0; c < shape.width; ++c) {
        largest = std::max(largest, std::abs(convert<float>(items.view<T, 2>()(r, c))));
      }
      half_scale.view<float, 1>()(r) = largest;
      for (std::int64_t c = 0; c < shape.width; ++c) {
        values(r, c) = f16(largest == 0 ? 0 : convert<float>(items.view<T, 2>()(r, c)) / largest);
        read_items.view<double, 2>()(r, c) = convert<double>(values(r, c)) * largest;
      }
    }
  }

  ops::SampledSoftmaxInputs<T> inputs() const {
    ops::SampledSoftmaxInputs<T> in = {.query = query.view<T, 2>(),
                                       .items = items.view<T, 2>(),
                                       .positive = {positive.data(), {shape.tokens}}};
    if (shape.kind == Negatives::kOwn) {
      in.negatives = {negatives.data(), {shape.tokens, shape.negatives}};
    } else {
      in.shared_negatives = {negatives.data(), {shape.negatives}};
    }
    if (shape.correction) in.correction = correction.view<A, 1>();
    if (options.sharing != ops::NegativeSharing::kNone) in.order = {order.data(), {shape.tokens}};
    if (shape.half) {
      in.negative_items = {half_items.view<f16, 2>(), half_scale.view<float, 1>()};
    }
    return in;
  }
  std::size_t workspace_bytes(const Context& ctx) const {
    return ops::softmax_workspace_bytes(ctx, shape.tokens, shape.items, shape.width,
                                        shape.kind == Negatives::kOwn ? shape.negatives : 0,
                                        options);
  }

  void forward(const Context& ctx, Tensor& loss, Tensor& log_sum_exp) const {
    const ops::SoftmaxOutput<T> output = {loss.view<A, 1>(), log_sum_exp.view<A, 1>()};
    if (shape.kind == Negatives::kAll) {
      ops::full_softmax<T>(ctx, query.view<T, 2>(), items.view<T, 2>(), inputs().positive, options,
                           output);
    } else {
      ops::sampled_softmax<T>(ctx, inputs(), options, output);
    }
  }

  // Forward and backward, onto ditems_start.
  SoftmaxResult run(const Context& ctx) const {
    ctx.workspace().reserve(workspace_bytes(ctx));
    SoftmaxResult result = {poisoned<A>({shape.tokens}), poisoned<A>({shape.tokens}),
                            poisoned<T>({shape.tokens, shape.width}),
                            converted<A, A>(ditems_start)};
    forward(ctx, result.loss, result.log_sum_exp);
    if (shape.kind == Negatives::kAll) {
      ops::full_softmax_backward<T>(ctx, query.view<T, 2>(), items.view<T, 2>(), inputs().positive,
                                    options, std::as_const(result.log_sum_exp).view<A, 1>(),
                                    dloss.view<A, 1>(), result.dquery.view<T, 2>(),
                                    result.ditems.view<A, 2>());
    } else {
      ops::sampled_softmax_backward<T>(
          ctx, inputs(), options, std::as_const(result.log_sum_exp).view<A, 1>(),
          dloss.view<A, 1>(), result.dquery.view<T, 2>(), result.ditems.view<A, 2>());
    }
    return result;
  }

  // What the token at a place of the ring competes with: the token whose query is multiplied, and
  // the item's row. The positive first.
  struct Term {
    std::int64_t token, row;
  };
  std::vector<Term> terms_of(std::int64_t place) const {
    const bool shares = options.sharing != ops::NegativeSharing::kNone;
    const bool logits = options.sharing == ops::NegativeSharing::kLogits;
    const auto at = [&](std::int64_t p) {
      return shares ? order[static_cast<std::size_t>(p % shape.tokens)] : p;
    };
    const std::int64_t i = at(place);
    std::vector<Term> terms = {{i, positive[static_cast<std::size_t>(i)]}};
    const std::int64_t sharers = shares ? std::min(options.sharing_factor, shape.tokens) : 1;
    const std::int64_t count = shape.kind == Negatives::kAll ? shape.items : shape.negatives;
    for (std::int64_t m = 0; m < sharers; ++m) {
      const std::int64_t owner = at(place + m);
      for (std::int64_t r = 0; r < count; ++r) {
        const std::int64_t row =
            shape.kind == Negatives::kAll
                ? r
                : negatives[static_cast<std::size_t>(
                      shape.kind == Negatives::kOwn ? owner * shape.negatives + r : r)];
        if (row == terms[0].row) continue;
        if (logits && row == positive[static_cast<std::size_t>(owner)]) continue;
        terms.push_back({logits ? owner : i, row});
      }
    }
    return terms;
  }

  // Loops over whole vectors in arithmetic R; dquery is rounded to Out at the end.
  template <class R, class Out>
  SoftmaxResult plain() const {
    const std::int64_t width = shape.width;
    const auto unit_rows = [&](const Tensor& x, std::vector<R>& inverse) {
      std::vector<R> rows(static_cast<std::size_t>(x.size()));
      for (std::int64_t r = 0; r < x.shape()[0]; ++r) {
        R squares = 0;
        for (std::int64_t c = 0; c < width; ++c) {
          const R value = static_cast<R>(element(x, r * width + c));
          squares += value * value;
        }
        inverse.push_back(options.normalize
                              ? R{1} / std::max(std::sqrt(squares), static_cast<R>(options.eps))
                              : R{1});
        for (std::int64_t c = 0; c < width; ++c) {
          rows[static_cast<std::size_t>(r * width + c)] =
              static_cast<R>(element(x, r * width + c)) * inverse.back();
        }
      }
      return rows;
    };
    std::vector<R> query_inverse, item_inverse, read_inverse;
    const std::vector<R> u = unit_rows(query, query_inverse);
    const std::vector<R> e_positive = unit_rows(items, item_inverse);
    const std::vector<R> e_negative = unit_rows(shape.half ? read_items : items, read_inverse);
    std::vector<R> du(u.size()), de_positive(e_positive.size()), de_negative(e_negative.size());
    SoftmaxResult result = {
        Tensor(dtype_of<R>(), {shape.tokens}), Tensor(dtype_of<R>(), {shape.tokens}),
        Tensor(dtype_of<Out>(), {shape.tokens, width}), Tensor(dtype_of<R>(), items.shape())};
    const R scale = static_cast<R>(1 / options.temperature);
    for (std::int64_t place = 0; place < shape.tokens; ++place) {
      const std::vector<Term> terms = terms_of(place);
      const std::int64_t i = terms[0].token;
      std::vector<R> logits;
      R largest = -std::numeric_limits<R>::infinity();
      for (std::size_t j = 0; j < terms.size(); ++j) {
        const std::vector<R>& e = j == 0 || !shape.half ? e_positive : e_negative;
        R dot = 0;
        for (std::int64_t c = 0; c < width; ++c) {
          dot += u[static_cast<std::size_t>(terms[j].token * width + c)] *
                 e[static_cast<std::size_t>(terms[j].row * width + c)];
        }
        dot *= scale;
        if (j > 0 && shape.correction) dot -= static_cast<R>(element(correction, terms[j].row));
        logits.push_back(dot);
        largest = std::max(largest, dot);
      }
      R sum = 0;
      for (const R logit : logits) sum += std::exp(logit - largest);
      const R log_sum_exp = largest + std::log(sum);
      result.log_sum_exp.view<R, 1>()(i) = log_sum_exp;
      result.loss.view<R, 1>()(i) = log_sum_exp - logits[0];
      for (std::size_t j = 0; j < terms.size(); ++j) {
        const std::vector<R>& e = j == 0 || !shape.half ? e_positive : e_negative;
        std::vector<R>& de = j == 0 || !shape.half ? de_positive : de_negative;
        const R g = static_cast<R>(element(dloss, i)) * scale *
                    (std::exp(logits[j] - log_sum_exp) - (j == 0 ? R{1} : R{0}));
        for (std::int64_t c = 0; c < width; ++c) {
          const auto uc = static_cast<std::size_t>(terms[j].token * width + c);
          const auto ec = static_cast<std::size_t>(terms[j].row * width + c);
          du[uc] += g * e[ec];
          de[ec] += g * u[uc];
        }
      }
    }
    const auto project = [&](const std::vector<R>& unit, std::vector<R>& d,
                             const std::vector<R>& inverse) {
      for (std::size_t r = 0; r < inverse.size(); ++r) {
        const std::size_t at = r * static_cast<std::size_t>(width);
        R along = 0;
        for (std::size_t c = at; c < at + static_cast<std::size_t>(width); ++c) {
          along += unit[c] * d[c];
        }
        if (!options.normalize || inverse[r] >= static_cast<R>(1 / options.eps)) along = 0;
        for (std::size_t c = at; c < at + static_cast<std::size_t>(width); ++c) {
          d[c] = inverse[r] * (d[c] - unit[c] * along);
        }
      }
    };
    project(u, du, query_inverse);
    project(e_positive, de_positive, item_inverse);
    project(e_negative, de_negative, read_inverse);
    for (std::int64_t i = 0; i < result.dquery.size(); ++i) {
      reinterpret_cast<Out*>(result.dquery.data())[i] =
          convert<Out>(du[static_cast<std::size_t>(i)]);
    }
    for (std::int64_t i = 0; i < result.ditems.size(); ++i) {
      reinterpret_cast<R*>(result.ditems.data())[i] =
          static_cast<R>(element(ditems_start, i)) +
          (de_positive[static_cast<std::size_t>(i)] + de_negative[static_cast<std::size_t>(i)]);
    }
    return result;
  }
};

}  // namespace turbogr::test
