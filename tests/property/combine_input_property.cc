#include <gtest/gtest.h>

#include <vector>

#include "tests/support/combine_input_case.h"

namespace turbogr::ops {
namespace {

using test::CombineCase;
using test::CombineInputs;
using test::CombineResults;
using test::same_bits;

template <class T>
class CombineInputLaw : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(CombineInputLaw, Formats);

TYPED_TEST(CombineInputLaw, BitsDoNotDependOnTheNumberOfThreads) {
  using T = TypeParam;
  const CombineCase c = {{90, 0, 7, 150, 33}, 37, 150, true, {.rate = 0.2, .seed = 3}};
  const CombineInputs<T> in(c);
  const Context one({.threads = 1});
  const CombineResults first = test::run_combine<T>(one, c, in);
  for (const int threads : {2, 3}) {
    const Context ctx({.threads = threads});
    const CombineResults other = test::run_combine<T>(ctx, c, in);
    EXPECT_TRUE(same_bits(first.x, other.x));
    EXPECT_TRUE(same_bits(first.de, other.de));
    EXPECT_TRUE(same_bits(first.dp, other.dp));
    EXPECT_TRUE(same_bits(first.dextra, other.dextra));
  }
}

// Swapping the two sequences, row keys with them, swaps the rows of x.
TYPED_TEST(CombineInputLaw, PermutingSequencesPermutesRows) {
  using T = TypeParam;
  std::vector<std::uint64_t> keys = {1, 2, 3, 11, 12}, swapped_keys = {11, 12, 1, 2, 3};
  CombineCase c = {{3, 2}, 20, 3, true, {.rate = 0.4, .seed = 3, .row_keys = {keys.data(), {5}}}};
  CombineCase swapped = c;
  swapped.lengths = {2, 3};
  swapped.dropout.row_keys = {swapped_keys.data(), {5}};
  const CombineInputs<T> in(c);
  const auto swap_rows = [](const Tensor& from) {
    Tensor to(dtype_of<T>(), from.shape());
    const T* source = from.view<T, 2>().data;
    std::copy_n(source + 3 * 20, 2 * 20, to.view<T, 2>().data);
    std::copy_n(source, 3 * 20, to.view<T, 2>().data + 2 * 20);
    return to;
  };
  CombineInputs<T> other(swapped);
  other.e = swap_rows(in.e);
  other.extra = swap_rows(in.extra);
  other.dx = swap_rows(in.dx);
  const Context ctx({.threads = 2});
  const CombineResults a = test::run_combine<T>(ctx, c, in);
  const CombineResults b = test::run_combine<T>(ctx, swapped, other);
  EXPECT_TRUE(same_bits(swap_rows(a.x), b.x));
  EXPECT_TRUE(same_bits(swap_rows(a.de), b.de));
}

}  // namespace
}  // namespace turbogr::ops
