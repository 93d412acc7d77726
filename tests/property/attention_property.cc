#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/attention_case.h"
#include "tests/support/simd_levels.h"

namespace turbogr::test {
namespace {

template <class T, bool kFuxi>
struct Kind {
  using Format = T;
  static constexpr bool fuxi = kFuxi;
};
template <class K>
class AttentionLaw : public ::testing::Test {};
using Kinds =
    ::testing::Types<Kind<float, false>, Kind<bf16, false>, Kind<float, true>, Kind<bf16, true>>;
TYPED_TEST_SUITE(AttentionLaw, Kinds);

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

// The inputs of some sequences of a batch, in the order given.
template <class T>
AttentionInputs<T> chosen(const AttentionInputs<T>& in, const std::vector<std::size_t>& order) {
  AttentionInputs<T> to;
  to.shape = in.shape;
  to.shape.lengths.clear();
  to.shape.prefix.clear();
  to.shape.targets.clear();
  for (const std::size_t b : order) {
    to.shape.lengths.push_back(in.shape.lengths[b]);
    to.shape.prefix.push_back(in.shape.prefix[b]);
    to.shape.targets.push_back(in.shape.targets[b]);
  }
  to.offsets = offsets_of(to.shape.lengths);
  to.projection = Tensor(in.projection.dtype(), {to.tokens(), to.width()});
  to.dout = Tensor(in.dout.dtype(), {to.tokens(), to.out_width()});
  to.position = converted<Accum<T>, Accum<T>>(in.position);
  to.time = converted<Accum<T>, Accum<T>>(in.time);
  std::int64_t row = 0;
  for (const std::size_t b : order) {
    for (std::int64_t i = in.offsets[b]; i < in.offsets[b + 1]; ++i, ++row) {
      const auto index = static_cast<std::size_t>(i);
      to.key_times.push_back(in.key_times[index]);
      to.query_times.push_back(in.query_times[index]);
      for (std::int64_t c = 0; c < to.width(); ++c) {
        to.projection.template view<T, 2>()(row, c) = in.projection.template view<T, 2>()(i, c);
      }
      for (std::int64_t c = 0; c < to.out_width(); ++c) {
        to.dout.template view<T, 2>()(row, c) = in.dout.template view<T, 2>()(i, c);
      }
    }
  }
  return to;
}

// Rows of sequence `b` of one result equal those of sequence `other_b` of another, bit for bit.
template <class T>
bool same_sequence(const AttentionInputs<T>& in, const Tensor& a, std::size_t b,
                   const AttentionInputs<T>& other_in, const Tensor& other, std::size_t other_b) {
  const auto row_bytes = static_cast<std::size_t>(a.shape()[1]) * sizeof(T);
  const auto begin = static_cast<std::size_t>(in.offsets[b]);
  const auto other_begin = static_cast<std::size_t>(other_in.offsets[other_b]);
  const auto rows = static_cast<std::size_t>(in.shape.lengths[b]);
  return std::memcmp(a.data() + begin * row_bytes, other.data() + other_begin * row_bytes,
                     rows * row_bytes) == 0;
}

AttentionCase uneven_case(bool fuxi, std::uint64_t seed) {
  return {.fuxi = fuxi,
          .lengths = {70, 3, 0, 135, 64},
          .heads = 3,
          .dq = 10,
          .dv = 7,
          .window = seed % 2 == 0 ? 0 : 30,
          .prefix = {2, 0, 0, 5, 1},
          .targets = {1, 0, 0, 20, 3},
          .seed = seed};
}

TYPED_TEST(AttentionLaw, ThreadsChangeNoBit) {
  using T = typename TypeParam::Format;
  for (const SimdLevel simd : simd_levels()) {
    const auto in = attention_inputs<T>(uneven_case(TypeParam::fuxi, 4));
    const AttentionResults one = run_attention_op(in, {.threads = 1, .simd = simd});
    for (const int threads : {2, 3, 8}) {
      const AttentionResults many = run_attention_op(in, {.threads = threads, .simd = simd});
      EXPECT_TRUE(same_bits(one.out, many.out));
      EXPECT_TRUE(same_bits(one.dq, many.dq));
      EXPECT_TRUE(same_bits(one.dk, many.dk));
      EXPECT_TRUE(same_bits(one.dv, many.dv));
      EXPECT_TRUE(same_bits(one.dposition, many.dposition));
      EXPECT_TRUE(same_bits(one.dtime, many.dtime));
    }
  }
}

TYPED_TEST(AttentionLaw, PermutingSequencesPermutesOutputs) {
  using T = typename TypeParam::Format;
  for (const std::uint64_t seed : {6u, 7u}) {
    const auto in = attention_inputs<T>(uneven_case(TypeParam::fuxi, seed));
    const std::vector<std::size_t> order = {3, 1, 4, 0, 2};
    const auto moved = chosen(in, order);
    const AttentionResults a = run_attention_op(in);
    const AttentionResults b = run_attention_op(moved);
    for (std::size_t place = 0; place < order.size(); ++place) {
      EXPECT_TRUE(same_sequence(in, a.out, order[place], moved, b.out, place));
      EXPECT_TRUE(same_sequence(in, a.dq, order[place], moved, b.dq, place));
      EXPECT_TRUE(same_sequence(in, a.dk, order[place], moved, b.dk, place));
      EXPECT_TRUE(same_sequence(in, a.dv, order[place], moved, b.dv, place));
    }
    // Summed in another order, so equal up to rounding.
    EXPECT_LT(max_error(a.dposition, b.dposition), 1e-5 * max_magnitude(a.dposition));
    EXPECT_LT(max_error(a.dtime, b.dtime), 1e-5 * max_magnitude(a.dtime));
  }
}

TYPED_TEST(AttentionLaw, ABatchEqualsItsSequencesOneByOne) {
  using T = typename TypeParam::Format;
  const auto in = attention_inputs<T>(uneven_case(TypeParam::fuxi, 9));
  const AttentionResults all = run_attention_op(in);
  Tensor dposition(DType::kF32, all.dposition.shape());
  Tensor dtime(DType::kF32, all.dtime.shape());
  fill<float>(dposition, 0.25);
  fill<float>(dtime, 0.25);
  for (std::size_t b = 0; b < in.shape.lengths.size(); ++b) {
    const auto one_in = chosen(in, {b});
    const AttentionResults one = run_attention_op(one_in);
    EXPECT_TRUE(same_sequence(in, all.out, b, one_in, one.out, 0));
    EXPECT_TRUE(same_sequence(in, all.dq, b, one_in, one.dq, 0));
    EXPECT_TRUE(same_sequence(in, all.dk, b, one_in, one.dk, 0));
    EXPECT_TRUE(same_sequence(in, all.dv, b, one_in, one.dv, 0));
    for (std::int64_t i = 0; i < dposition.size(); ++i) {
      dposition.view<float, 1>()(i) += static_cast<float>(element(one.dposition, i) - 0.25);
    }
    for (std::int64_t i = 0; i < dtime.size(); ++i) {
      dtime.view<float, 1>()(i) += static_cast<float>(element(one.dtime, i) - 0.25);
    }
  }
  EXPECT_LT(max_error(all.dposition, dposition), 1e-5 * max_magnitude(dposition));
  EXPECT_LT(max_error(all.dtime, dtime), 1e-5 * max_magnitude(dtime));
}

// What happens later changes nothing before it, to the bit: causality, seen from outside.
TYPED_TEST(AttentionLaw, TheFutureDoesNotReachThePast) {
  using T = typename TypeParam::Format;
  auto in = attention_inputs<T>({.fuxi = TypeParam::fuxi, .lengths = {150}, .dq = 5, .dv = 6});
  const AttentionResults before = run_attention_op(in);
  constexpr std::int64_t kChanged = 90;
  for (std::int64_t c = 0; c < in.width(); ++c) {
    in.projection.template view<T, 2>()(kChanged, c) = convert<T>(3.0f);
  }
  const AttentionResults after = run_attention_op(in);
  const auto row = static_cast<std::size_t>(in.out_width()) * sizeof(T);
  EXPECT_EQ(std::memcmp(before.out.data(), after.out.data(), kChanged * row), 0);
  EXPECT_NE(std::memcmp(before.out.data() + kChanged * row, after.out.data() + kChanged * row,
                        (150 - kChanged) * row),
            0);
}

}  // namespace
}  // namespace turbogr::test
