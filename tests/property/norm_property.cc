#include <gtest/gtest.h>

#include "tests/support/norm_case.h"

namespace turbogr::ops {
namespace {

using test::NormCase;
using test::NormInputs;
using test::NormResults;
using test::same_bits;

template <class T>
class NormLaw : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(NormLaw, Formats);

TYPED_TEST(NormLaw, BitsDoNotDependOnTheNumberOfThreads) {
  using T = TypeParam;
  const NormCase c = {.rows = 300,
                      .cols = 70,
                      .kind = NormKind::kLayer,
                      .affine = true,
                      .gated = true,
                      .dropout = {.rate = 0.2, .seed = 4}};
  const NormInputs<T> in(c);
  Context one({.threads = 1});
  const NormResults first = test::run_norm<T>(one, c, in);
  for (const int threads : {2, 3}) {
    Context ctx({.threads = threads});
    const NormResults other = test::run_norm<T>(ctx, c, in);
    EXPECT_TRUE(same_bits(first.y, other.y));
    EXPECT_TRUE(same_bits(first.dx, other.dx));
    EXPECT_TRUE(same_bits(first.dgate, other.dgate));
    EXPECT_TRUE(same_bits(first.dweight, other.dweight));
    EXPECT_TRUE(same_bits(first.dbias, other.dbias));
  }
}

// With the same row keys, a row's result does not depend on where it stands or what stands around
// it.
TYPED_TEST(NormLaw, RowsAreIndependent) {
  using T = TypeParam;
  const std::int64_t cols = 37;
  const std::uint64_t keys[] = {5, 1ull << 50, 9};
  NormCase c = {.rows = 3,
                .cols = cols,
                .kind = NormKind::kRms,
                .gated = true,
                .concat = true,
                .dropout = {.rate = 0.5, .seed = 4, .row_keys = {keys, {3}}}};
  const NormInputs<T> in(c);
  Context ctx({.threads = 2});
  const NormResults whole = test::run_norm<T>(ctx, c, in);
  const auto slice = [](const Tensor& tensor, std::int64_t row) {
    const std::int64_t width = tensor.shape()[1];
    Tensor out(dtype_of<T>(), {1, width});
    std::copy_n(tensor.view<T, 2>().data + row * width, width, out.view<T, 2>().data);
    return out;
  };
  for (std::int64_t row = 0; row < 3; ++row) {
    NormCase one = c;
    one.rows = 1;
    one.dropout.row_keys = {keys + row, {1}};
    NormInputs<T> part(one);
    part.x = slice(in.x, row);
    part.gate = slice(in.gate, row);
    part.dy = slice(in.dy, row);
    const NormResults alone = test::run_norm<T>(ctx, one, part);
    EXPECT_TRUE(same_bits(alone.y, slice(whole.y, row)));
    EXPECT_TRUE(same_bits(alone.dx, slice(whole.dx, row)));
    EXPECT_TRUE(same_bits(alone.dgate, slice(whole.dgate, row)));
  }
}

}  // namespace
}  // namespace turbogr::ops
