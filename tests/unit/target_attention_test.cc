#include "turbogr/ops/attention/target_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/block.h"
#include "tests/support/data.h"
#include "tests/support/messages.h"
#include "tests/support/simd_levels.h"
#include "turbogr/ops/attention/hstu_attention.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/event_targets.h"

namespace turbogr::ops {
namespace {

using test::Block;
using test::message_of;
using test::random_tensor;

// Sequences whose last tokens are targets.
struct Case {
  std::vector<std::int64_t> before, targets;
  int heads;
  std::int64_t query_width, value_width;  // of a head

  std::vector<std::int64_t> offsets() const {
    std::vector<std::int64_t> lengths;
    for (std::size_t b = 0; b < before.size(); ++b) lengths.push_back(before[b] + targets[b]);
    return test::offsets_of(lengths);
  }
  std::vector<std::int64_t> places() const {
    std::vector<std::int64_t> places;
    const std::vector<std::int64_t> all = offsets();
    for (std::size_t b = 0; b < before.size(); ++b) {
      for (std::int64_t i = all[b] + before[b]; i < all[b + 1]; ++i) places.push_back(i);
    }
    return places;
  }
};

const std::vector<Case> kCases = {{{}, {}, 1, 4, 4},
                                  {{0, 3}, {0, 0}, 2, 5, 7},
                                  {{0, 5, 40, 1}, {1, 3, 2, 0}, 2, 6, 10},
                                  {{70, 0, 30}, {1, 1, 20}, 3, 16, 9}};

constexpr double kAlpha = 0.3, kNorm = 17;

struct Results {
  Tensor out, dq, dk, dv;
};

template <class T>
struct Inputs {
  Tensor q, k, v, dout;  // of targets, of all tokens twice, of targets

  explicit Inputs(const Case& c)
      : q(random_tensor<T>({std::ssize(c.places()), c.heads * c.query_width}, 1)),
        k(random_tensor<T>({c.offsets().back(), c.heads * c.query_width}, 2)),
        v(random_tensor<T>({c.offsets().back(), c.heads * c.value_width}, 3)),
        dout(random_tensor<T>({std::ssize(c.places()), c.heads * c.value_width}, 4)) {}
};

template <class T>
Results run(const Context& ctx, const Case& c, const Inputs<T>& in) {
  const Block<T> q(in.q), k(in.k), v(in.v), dout(in.dout);
  Block<T> out(in.q.shape()[0], in.v.shape()[1]), dq(in.q.shape()[0], in.q.shape()[1]),
      dk(in.k.shape()[0], in.k.shape()[1]), dv(in.v.shape()[0], in.v.shape()[1]);
  const std::vector<std::int64_t> offsets = c.offsets(), starts = test::offsets_of(c.targets);
  const TargetSequences sequences = {test::view_of(offsets), test::view_of(starts)};
  const TargetAttentionOptions options = {c.heads, kAlpha, kNorm};
  target_attention<T>(ctx, sequences, q.rows(), k.rows(), v.rows(), options, out.rows());
  target_attention_backward<T>(ctx, sequences, q.rows(), k.rows(), v.rows(), options, dout.rows(),
                               dq.rows(), dk.rows(), dv.rows());
  return {out.values(), dq.values(), dk.values(), dv.values()};
}

// From attention of all tokens, of which only targets are looked at.
Results reference(const Context& ctx, const Case& c, const Inputs<double>& in) {
  const std::vector<std::int64_t> offsets = c.offsets(), places = c.places();
  const std::int64_t n = offsets.back();
  Tensor q(DType::kF64, in.k.shape()), dout(DType::kF64, in.v.shape());
  Tensor out(DType::kF64, in.v.shape()), dq(DType::kF64, q.shape());
  Results results = {Tensor(DType::kF64, in.dout.shape()), Tensor(DType::kF64, in.q.shape()),
                     Tensor(DType::kF64, in.k.shape()), Tensor(DType::kF64, in.v.shape())};
  spread_rows<double>(ctx, in.q.view<double, 2>(), test::view_of(places), q.view<double, 2>());
  spread_rows<double>(ctx, in.dout.view<double, 2>(), test::view_of(places),
                      dout.view<double, 2>());
  const HstuAttentionOptions options = {.heads = c.heads,
                                        .alpha = kAlpha,
                                        .norm_length = kNorm,
                                        .mask = {.num_targets = test::view_of(c.targets)}};
  const Jagged<const double> queries = {q.view<double, 2>(), test::view_of(offsets)};
  if (n > 0) {
    hstu_attention<double>(ctx, queries, in.k.view<double, 2>(), in.v.view<double, 2>(), {},
                           options, out.view<double, 2>());
    hstu_attention_backward<double>(ctx, queries, in.k.view<double, 2>(), in.v.view<double, 2>(),
                                    {}, options, std::as_const(dout).view<double, 2>(),
                                    dq.view<double, 2>(), results.dk.view<double, 2>(),
                                    results.dv.view<double, 2>(), {});
  }
  gather_rows<double, double, std::int64_t>(ctx, std::as_const(out).view<double, 2>(),
                                            test::view_of(places), results.out.view<double, 2>());
  gather_rows<double, double, std::int64_t>(ctx, std::as_const(dq).view<double, 2>(),
                                            test::view_of(places), results.dq.view<double, 2>());
  return results;
}

void expect_near(const Results& got, const Results& want, double unit) {
  const auto near = [&](const Tensor& a, const Tensor& b) {
    EXPECT_LE(test::max_error(a, b), unit * std::max(1.0, test::max_magnitude(b)));
  };
  near(got.out, want.out);
  near(got.dq, want.dq);
  near(got.dk, want.dk);
  near(got.dv, want.dv);
}

TEST(TargetAttention, IsThatOfAllTokensWhereTargetsAre) {
  const Context ctx({.threads = 2, .workspace_bytes = 1 << 20});
  for (const Case& c : kCases) {
    const Inputs<double> in(c);
    const Results want = reference(ctx, c, in);
    expect_near(run<double>(ctx, c, in), want, 1e-13);
    // The same numbers, rounded.
    for (const SimdLevel simd : test::simd_levels()) {
      SCOPED_TRACE(name_of(simd));
      const Context level({.threads = 2, .simd = simd});
      expect_near(run<float>(level, c, Inputs<float>(c)), want, 1e-5);
      expect_near(run<bf16>(level, c, Inputs<bf16>(c)), want, 0.05);
    }
  }
}

TEST(TargetAttention, AnyNumberOfThreadsGivesTheSameBits) {
  const Case& c = kCases.back();
  const Inputs<float> in(c);
  const Context one({.threads = 1}), three({.threads = 3});
  const Results a = run<float>(one, c, in), b = run<float>(three, c, in);
  EXPECT_TRUE(test::same_bits(a.out, b.out));
  EXPECT_TRUE(test::same_bits(a.dq, b.dq));
  EXPECT_TRUE(test::same_bits(a.dk, b.dk));
  EXPECT_TRUE(test::same_bits(a.dv, b.dv));
}

TEST(TargetAttention, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  const std::vector<std::int64_t> offsets = {0, 3}, many = {0, 4}, right = {0, 1};
  Tensor q(DType::kF32, {1, 4}), four(DType::kF32, {4, 4}), k(DType::kF32, {3, 4}),
      out(DType::kF32, {1, 4});
  const auto call = [&](const Tensor& queries, const std::vector<std::int64_t>& starts) {
    return message_of([&] {
      target_attention<float>(ctx, {test::view_of(offsets), test::view_of(starts)},
                              queries.view<float, 2>(), std::as_const(k).view<float, 2>(),
                              std::as_const(k).view<float, 2>(), {}, out.view<float, 2>());
    });
  };
  EXPECT_EQ(call(q, right), "");
  EXPECT_EQ(call(four, many),
            "target_attention: sequence 0 has 3 tokens and 4 "
            "targets; targets are some of the "
            "tokens");
  EXPECT_NE(call(q, {0, 1, 1}).find("offsets of 1 sequences and of the targets of 2"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::ops
