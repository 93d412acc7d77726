// One attention call, HSTU's or FuXi's: random inputs in the layout models use (q, k, v are slices
// of one buffer), run by the kernel or by the plain reference in any number format.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/tolerance.h"
#include "turbogr/core/context.h"
#include "turbogr/ops/attention/cpu/attention_reference.h"
#include "turbogr/ops/attention/fuxi_attention.h"
#include "turbogr/ops/attention/hstu_attention.h"

namespace turbogr::test {

enum class Times { kSorted, kEqual, kBackwards, kShuffled, kMilliseconds, kHuge };

struct AttentionCase {
  bool fuxi = false;
  std::vector<std::int64_t> lengths = {5};
  int heads = 1;
  std::int64_t dq = 4;
  std::int64_t dv = 4;
  bool position = true;
  bool time = true;
  Times times = Times::kSorted;
  double alpha = 1;
  double norm_length = 7;
  std::int64_t window = 0;
  std::vector<std::int64_t> prefix = {};
  std::vector<std::int64_t> targets = {};
  bool together = false;  // targets, for the position table
  std::uint64_t seed = 1;
  std::int64_t max_length = 0;  // 0: the longest of the batch
};

template <class T>
struct AttentionInputs {
  AttentionCase shape;
  std::vector<std::int64_t> offsets, key_times, query_times;
  Tensor projection;  // [N, (q | v | k) and columns between them that belong to nobody]
  Tensor dout;
  Tensor position, time;  // of Accum<T>

  std::int64_t tokens() const { return offsets.back(); }
  std::int64_t q_column() const { return 1; }
  std::int64_t v_column() const { return q_column() + shape.heads * shape.dq; }
  std::int64_t k_column() const { return v_column() + shape.heads * shape.dv + 2; }
  std::int64_t width() const { return k_column() + shape.heads * shape.dq; }
  std::int64_t out_width() const { return shape.heads * shape.dv * (shape.fuxi ? 3 : 1); }
  static View<const std::int64_t, 1> counts(const std::vector<std::int64_t>& values) {
    return {values.data(), {static_cast<std::int64_t>(values.size())}};
  }

  ops::AttentionProblem<T> problem() const {
    ops::AttentionProblem<T> p;
    const Rows<const T> all = projection.view<T, 2>();
    p.q = {all.columns(q_column(), shape.heads * shape.dq), counts(offsets)};
    p.k = all.columns(k_column(), shape.heads * shape.dq);
    p.v = all.columns(v_column(), shape.heads * shape.dv);
    if (shape.position) p.bias.position = position.view<Accum<T>, 1>();
    if (shape.time) p.bias.time = time.view<Accum<T>, 1>();
    if (shape.time) p.bias.key_times = counts(key_times);
    if (shape.time) p.bias.query_times = counts(query_times);
    p.heads = shape.heads;
    p.alpha = shape.alpha;
    p.norm_length = shape.norm_length;
    p.mask = {shape.window, counts(shape.prefix), counts(shape.targets), shape.together};
    return p;
  }
};

inline std::vector<std::int64_t> random_times(Times kind, std::int64_t count, std::uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<std::int64_t> times;
  std::int64_t now = 1650000000;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto step = static_cast<std::int64_t>(std::exp(3 + 3 * random.normal()));
    switch (kind) {
      case Times::kSorted:
        now += step;
        break;
      case Times::kEqual:
        break;
      case Times::kBackwards:
        now -= step;
        break;
      case Times::kShuffled:
        now = 1650000000 + static_cast<std::int64_t>(1e6 * random.normal());
        break;
      case Times::kMilliseconds:  // a tile spans more than 2^31, some more than 2^32
        now += 1000000 * step;
        break;
      case Times::kHuge: {
        constexpr std::int64_t kExtremes[] = {std::numeric_limits<std::int64_t>::min(), -1, 0, 1,
                                              std::numeric_limits<std::int64_t>::max()};
        now = i % 2 == 0 ? kExtremes[i / 2 % 5] : static_cast<std::int64_t>(1e17 * random.normal());
        break;
      }
    }
    times.push_back(now);
  }
  return times;
}

template <class T>
AttentionInputs<T> attention_inputs(const AttentionCase& shape) {
  AttentionInputs<T> in;
  in.shape = shape;
  in.offsets = offsets_of(shape.lengths);
  std::int64_t longest = 1;
  for (const std::int64_t length : shape.lengths) longest = std::max(longest, length);
  if (shape.max_length != 0) longest = shape.max_length;
  const double scale = std::pow(static_cast<double>(shape.dq), -0.25);
  in.projection = random_tensor<T>({in.tokens(), in.width()}, shape.seed, 1.5 * scale);
  in.dout = random_tensor<T>({in.tokens(), in.out_width()}, shape.seed + 1);
  in.position = random_tensor<Accum<T>>({2 * longest - 1}, shape.seed + 2, 0.5);
  in.time = random_tensor<Accum<T>>({129}, shape.seed + 3, 0.5);
  // One draw for a sequence longer than the batch: query i has the time of event i + 1.
  const std::vector<std::int64_t> times =
      random_times(shape.times, in.tokens() + 1, shape.seed + 4);
  in.key_times.assign(times.begin(), times.end() - 1);
  in.query_times.assign(times.begin() + 1, times.end());
  return in;
}

template <class To, class From>
AttentionInputs<To> converted_inputs(const AttentionInputs<From>& from) {
  AttentionInputs<To> to;
  to.shape = from.shape;
  to.offsets = from.offsets;
  to.key_times = from.key_times;
  to.query_times = from.query_times;
  to.projection = converted<To, From>(from.projection);
  to.dout = converted<To, From>(from.dout);
  to.position = converted<Accum<To>, Accum<From>>(from.position);
  to.time = converted<Accum<To>, Accum<From>>(from.time);
  return to;
}

// Results, dense. Table gradients start from 0.25, as they are added to.
struct AttentionResults {
  Tensor out, dq, dk, dv, dposition, dtime;
};

template <class T>
void fill(Tensor& tensor, double value) {
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    reinterpret_cast<T*>(tensor.data())[i] = convert<T>(static_cast<Accum<T>>(value));
  }
}

template <class T>
Tensor slice_of(const Tensor& buffer, std::int64_t column, std::int64_t width) {
  Tensor slice(buffer.dtype(), {buffer.shape()[0], width});
  for (std::int64_t r = 0; r < buffer.shape()[0]; ++r) {
    for (std::int64_t c = 0; c < width; ++c) {
      slice.view<T, 2>()(r, c) = buffer.view<T, 2>()(r, column + c);
    }
  }
  return slice;
}

template <class T>
ops::AttentionShape attention_shape(const Context& ctx, const AttentionInputs<T>& in) {
  std::int64_t longest = 0;
  for (const std::int64_t length : in.shape.lengths) longest = std::max(longest, length);
  return {.threads = ctx.threads(),
          .tokens = in.tokens(),
          .batch = static_cast<std::int64_t>(in.shape.lengths.size()),
          .max_length = longest,
          .heads = in.shape.heads,
          .query_width = in.shape.dq,
          .value_width = in.shape.dv};
}

// Runs the operator on poisoned outputs. Columns beside the slices must stay poisoned.
template <class T>
AttentionResults run_attention_op(const AttentionInputs<T>& in,
                                  const ContextOptions& options = {}) {
  const AttentionCase& c = in.shape;
  const Context ctx(options);
  const ops::AttentionShape shape = attention_shape(ctx, in);
  ctx.workspace().reserve(std::max(c.fuxi ? ops::fuxi_attention_workspace_bytes<T>(shape)
                                          : ops::hstu_attention_workspace_bytes<T>(shape),
                                   c.fuxi
                                       ? ops::fuxi_attention_backward_workspace_bytes<T>(shape)
                                       : ops::hstu_attention_backward_workspace_bytes<T>(shape)));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Tensor out(dtype_of<T>(), {in.tokens(), in.out_width() + 3});
  Tensor gradient(dtype_of<T>(), {in.tokens(), in.width()});
  AttentionResults results;
  results.dposition = Tensor(dtype_of<Accum<T>>(), in.position.shape());
  results.dtime = Tensor(dtype_of<Accum<T>>(), in.time.shape());
  fill<T>(out, nan);
  fill<T>(gradient, nan);
  fill<Accum<T>>(results.dposition, 0.25);
  fill<Accum<T>>(results.dtime, 0.25);
  const ops::AttentionProblem<T> p = in.problem();
  const Rows<T> y = Rows<T>(out.view<T, 2>()).columns(2, in.out_width());
  const Rows<T> all = gradient.view<T, 2>();
  const Rows<T> dq = all.columns(in.q_column(), c.heads * c.dq);
  const Rows<T> dk = all.columns(in.k_column(), c.heads * c.dq);
  const Rows<T> dv = all.columns(in.v_column(), c.heads * c.dv);
  ops::AttentionBiasGradient<T> dbias;
  if (c.position) dbias.position = results.dposition.view<Accum<T>, 1>();
  if (c.time) dbias.time = results.dtime.view<Accum<T>, 1>();
  const Rows<const T> dout = in.dout.template view<T, 2>();
  if (c.fuxi) {
    const ops::FuxiAttentionOptions o = {c.heads, c.alpha, c.norm_length, p.mask};
    ops::fuxi_attention<T>(ctx, p.q, p.k, p.v, p.bias, o, y);
    ops::fuxi_attention_backward<T>(ctx, p.q, p.k, p.v, p.bias, o, dout, dq, dk, dv, dbias);
  } else {
    const ops::HstuAttentionOptions o = {c.heads, c.alpha, c.norm_length, p.mask};
    ops::hstu_attention<T>(ctx, p.q, p.k, p.v, p.bias, o, y);
    ops::hstu_attention_backward<T>(ctx, p.q, p.k, p.v, p.bias, o, dout, dq, dk, dv, dbias);
  }
  for (std::int64_t r = 0; r < in.tokens(); ++r) {
    const auto at = [&](const Tensor& t, std::int64_t col) {
      return element(t, r * t.shape()[1] + col);
    };
    EXPECT_TRUE(std::isnan(at(out, 1)) && std::isnan(at(out, in.out_width() + 2)));
    EXPECT_TRUE(std::isnan(at(gradient, 0)) && std::isnan(at(gradient, in.k_column() - 1)));
  }
  results.out = slice_of<T>(out, 2, in.out_width());
  results.dq = slice_of<T>(gradient, in.q_column(), c.heads * c.dq);
  results.dk = slice_of<T>(gradient, in.k_column(), c.heads * c.dq);
  results.dv = slice_of<T>(gradient, in.v_column(), c.heads * c.dv);
  return results;
}

// The reference in the format of T: sums in Accum<T>, results rounded to T at the end.
template <class T>
AttentionResults run_attention_reference(const AttentionInputs<T>& in) {
  using A = Accum<T>;
  const AttentionCase& c = in.shape;
  Tensor out(dtype_of<A>(), {in.tokens(), in.out_width()});
  Tensor dq(dtype_of<A>(), {in.tokens(), c.heads * c.dq});
  Tensor dk(dtype_of<A>(), {in.tokens(), c.heads * c.dq});
  Tensor dv(dtype_of<A>(), {in.tokens(), c.heads * c.dv});
  AttentionResults results;
  results.dposition = Tensor(dtype_of<A>(), in.position.shape());
  results.dtime = Tensor(dtype_of<A>(), in.time.shape());
  fill<A>(results.dposition, 0.25);
  fill<A>(results.dtime, 0.25);
  const ops::AttentionBiasGradient<T> dbias = {results.dposition.view<A, 1>(),
                                               results.dtime.view<A, 1>()};
  const auto p = in.problem();
  const Rows<const T> dout = in.dout.template view<T, 2>();
  if (c.fuxi) {
    ops::fuxi_attention_reference<T>(p, out.view<A, 2>());
    ops::fuxi_attention_backward_reference<T>(p, dout, dq.view<A, 2>(), dk.view<A, 2>(),
                                              dv.view<A, 2>(), dbias);
  } else {
    ops::hstu_attention_reference<T>(p, out.view<A, 2>());
    ops::hstu_attention_backward_reference<T>(p, dout, dq.view<A, 2>(), dk.view<A, 2>(),
                                              dv.view<A, 2>(), dbias);
  }
  results.out = converted<T, A>(out);
  results.dq = converted<T, A>(dq);
  results.dk = converted<T, A>(dk);
  results.dv = converted<T, A>(dv);
  return results;
}

// The kernel is as close to the double reference as plain code in the same format is. `draws` > 1
// compares the worst of several draws: where a result is one long sum, a single plain error is
// luck.
template <class T>
void expect_as_good_as_plain(AttentionCase shape, const std::vector<SimdLevel>& levels,
                             int draws = 1) {
  struct Part {
    const char* name;
    Tensor AttentionResults::*tensor;
  };
  constexpr Part kParts[] = {
      {"out", &AttentionResults::out},     {"dq", &AttentionResults::dq},
      {"dk", &AttentionResults::dk},       {"dv", &AttentionResults::dv},
      {"dtime", &AttentionResults::dtime}, {"dposition", &AttentionResults::dposition}};
  std::vector<AttentionInputs<T>> inputs;
  std::vector<AttentionResults> plain, reference;
  for (int draw = 0; draw < draws; ++draw, shape.seed += 10) {
    inputs.push_back(attention_inputs<T>(shape));
    plain.push_back(run_attention_reference(inputs.back()));
    reference.push_back(run_attention_reference(converted_inputs<double>(inputs.back())));
  }
  const auto joined = [&](const std::vector<AttentionResults>& results,
                          Tensor AttentionResults::*part) {
    const Tensor& first = results[0].*part;
    Tensor all(first.dtype(), {draws, first.size()});
    for (int draw = 0; draw < draws; ++draw) {
      const Tensor& one = results[static_cast<std::size_t>(draw)].*part;
      if (one.bytes() != 0) {
        std::memcpy(all.data() + static_cast<std::size_t>(draw) * one.bytes(), one.data(),
                    one.bytes());
      }
    }
    return all;
  };
  for (const SimdLevel simd : levels) {
    std::vector<AttentionResults> fast;
    for (const AttentionInputs<T>& in : inputs) {
      fast.push_back(run_attention_op(in, {.threads = 2, .simd = simd}));
    }
    for (const Part& part : kParts) {
      EXPECT_TRUE(as_close_as_plain(joined(fast, part.tensor), joined(plain, part.tensor),
                                    joined(reference, part.tensor)))
          << part.name << " " << name_of(simd) << " " << name_of(dtype_of<T>());
    }
  }
}

}  // namespace turbogr::test
