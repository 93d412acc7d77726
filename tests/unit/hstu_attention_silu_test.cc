#include <gtest/gtest.h>

#include "tests/support/attention_case.h"
#include "turbogr/ops/attention/hstu_attention.h"
#include "turbogr/ops/dense/silu.h"

namespace turbogr::test {
namespace {

template <class T>
class HstuAttentionBeforeSilu : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(HstuAttentionBeforeSilu, Formats);

// The contract in two steps: attention's gradients, then SiLU's.
TYPED_TEST(HstuAttentionBeforeSilu, GivesTheGradientsOfTheRowsBefore) {
  using T = TypeParam;
  const AttentionInputs<T> in = attention_inputs<T>({.lengths = {7, 0, 3}, .heads = 2});
  const Context ctx(ContextOptions{});
  const ops::AttentionShape shape = attention_shape(ctx, in);
  ctx.workspace().reserve(ops::hstu_attention_backward_workspace_bytes<T>(shape));
  const ops::AttentionProblem<T> p = in.problem();
  const std::int64_t width = p.k.cols;
  struct Gradients {
    Tensor dq, dk, dv;
  };
  const auto run = [&](const ops::BeforeSilu<T>& before) {
    const auto rows = [&] { return Tensor(dtype_of<T>(), {in.tokens(), width}); };
    Gradients g{rows(), rows(), rows()};
    ops::hstu_attention_backward<T>(
        ctx, p.q, p.k, p.v, p.bias, {.heads = p.heads, .norm_length = p.norm_length},
        in.dout.template view<T, 2>(), g.dq.template view<T, 2>(), g.dk.template view<T, 2>(),
        g.dv.template view<T, 2>(), {}, before);
    return g;
  };
  const Gradients plain = run({});
  const Gradients got = run({p.q.values, p.k, p.v});
  const auto compare = [&](const Tensor& from, Rows<const T> before, const Tensor& to) {
    Tensor wanted(dtype_of<T>(), from.shape());
    ops::silu_backward<T>(ctx, before, from.template view<T, 2>(), wanted.template view<T, 2>());
    for (std::int64_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(element(to, i), element(wanted, i));
  };
  compare(plain.dq, p.q.values, got.dq);
  compare(plain.dk, p.k, got.dk);
  compare(plain.dv, p.v, got.dv);
}

}  // namespace
}  // namespace turbogr::test
