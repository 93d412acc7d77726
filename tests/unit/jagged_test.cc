#include "turbogr/ops/jagged.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/messages.h"
#include "tests/support/tolerance.h"

namespace turbogr::ops {
namespace {

using test::element;
using test::message_of;
using test::offsets_of;
using test::random_tensor;
using test::view_of;

template <class T>
struct Batch {
  std::vector<std::int64_t> offsets;
  Tensor values;

  Batch(const std::vector<std::int64_t>& lengths, std::int64_t width, std::uint64_t seed)
      : offsets(offsets_of(lengths)), values(random_tensor<T>({offsets.back(), width}, seed)) {}
  // Poisoned: what an operator leaves unwritten stays a NaN.
  Batch(std::vector<std::int64_t> offsets_in, std::int64_t width)
      : offsets(std::move(offsets_in)), values(dtype_of<T>(), {offsets.back(), width}) {
    T* data = reinterpret_cast<T*>(values.data());
    for (std::int64_t i = 0; i < values.size(); ++i) {
      data[i] = convert<T>(std::numeric_limits<float>::quiet_NaN());
    }
  }
  Jagged<T> view() { return {values.template view<T, 2>(), view_of(std::as_const(offsets))}; }
  double at(std::int64_t sequence, std::int64_t row, std::int64_t c) const {
    const std::int64_t width = values.shape()[1];
    return element(values, (offsets[static_cast<std::size_t>(sequence)] + row) * width + c);
  }
};

const std::vector<std::int64_t> kA = {3, 0, 700, 1, 0};
const std::vector<std::int64_t> kB = {2, 0, 5, 0, 300};

template <class T>
class JaggedOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(JaggedOf, Formats);

TYPED_TEST(JaggedOf, ConcatPutsSequencesEndToEndAndSplitUndoesIt) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  Batch<T> a(kA, 5, 1);
  Batch<T> b(kB, 5, 2);
  std::vector<std::int64_t> offsets(6);
  EXPECT_EQ(concat_offsets(ctx, view_of(std::as_const(a.offsets)),
                           view_of(std::as_const(b.offsets)), view_of(offsets)),
            1011);
  EXPECT_EQ(offsets, offsets_of({5, 0, 705, 1, 300}));
  Batch<T> out(offsets, 5);
  jagged_concat<T>(ctx, a.view(), b.view(), out.view());
  for (std::int64_t s = 0; s < 5; ++s) {
    const std::int64_t na = kA[static_cast<std::size_t>(s)];
    for (std::int64_t r = 0; r < na + kB[static_cast<std::size_t>(s)]; ++r) {
      for (std::int64_t c = 0; c < 5; ++c) {
        ASSERT_EQ(out.at(s, r, c), r < na ? a.at(s, r, c) : b.at(s, r - na, c));
      }
    }
  }
  Batch<T> back_a(a.offsets, 5);
  Batch<T> back_b(b.offsets, 5);
  jagged_split<T>(ctx, out.view(), back_a.view(), back_b.view());
  EXPECT_EQ(std::memcmp(back_a.values.data(), a.values.data(), a.values.bytes()), 0);
  EXPECT_EQ(std::memcmp(back_b.values.data(), b.values.data(), b.values.bytes()), 0);
}

TYPED_TEST(JaggedOf, LastKRowsTakesTheEndAndItsBackwardPutsZerosElsewhere) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  for (const std::int64_t k : {0, 1, 2, 300, 1000}) {
    Batch<T> x(kA, 3, 1);
    std::vector<std::int64_t> offsets(6);
    last_k_offsets(ctx, view_of(std::as_const(x.offsets)), k, view_of(offsets));
    Batch<T> out(offsets, 3);
    last_k_rows<T>(ctx, x.view(), k, out.view());
    Batch<T> dx(x.offsets, 3);
    last_k_rows_backward<T>(ctx, out.view(), k, dx.view());
    for (std::int64_t s = 0; s < 5; ++s) {
      const std::int64_t n = kA[static_cast<std::size_t>(s)];
      const std::int64_t kept = std::min(k, n);
      ASSERT_EQ(offsets[static_cast<std::size_t>(s + 1)] - offsets[static_cast<std::size_t>(s)],
                kept);
      for (std::int64_t r = 0; r < n; ++r) {
        const double want = r >= n - kept ? x.at(s, r, 1) : 0.0;
        ASSERT_EQ(dx.at(s, r, 1), want);
        if (r >= n - kept) {
          ASSERT_EQ(out.at(s, r - n + kept, 1), want);
        }
      }
    }
  }
}

TYPED_TEST(JaggedOf, PaddingFillsWithZerosAndComesBack) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  Batch<T> x({3, 0, 4, 1}, 5, 1);
  Batch<T> padded({0, 16}, 5);
  const View<T, 3> cube = {reinterpret_cast<T*>(padded.values.data()), {4, 4, 5}};
  to_padded<T>(ctx, x.view(), cube);
  for (std::int64_t s = 0; s < 4; ++s) {
    for (std::int64_t r = 0; r < 4; ++r) {
      const bool real =
          r < x.offsets[static_cast<std::size_t>(s + 1)] - x.offsets[static_cast<std::size_t>(s)];
      EXPECT_EQ(padded.at(0, s * 4 + r, 2), real ? x.at(s, r, 2) : 0.0);
    }
  }
  Batch<T> back(x.offsets, 5);
  from_padded<T>(ctx, cube, back.view());
  EXPECT_EQ(std::memcmp(back.values.data(), x.values.data(), x.values.bytes()), 0);
}

TEST(Jagged, AnEmptyBatchIsFine) {
  const Context ctx;
  Batch<float> none({}, 4, 1);
  std::vector<std::int64_t> offsets(1, -1);
  EXPECT_EQ(offsets_from_lengths(ctx, {nullptr, {0}}, view_of(offsets)), 0);
  EXPECT_EQ(offsets[0], 0);
  jagged_concat<float>(ctx, none.view(), none.view(), none.view());
  last_k_rows<float>(ctx, none.view(), 3, none.view());
  to_padded<float>(ctx, none.view(), {nullptr, {0, 7, 4}});
}

TEST(Jagged, SaysWhatIsWrong) {
  const Context ctx;
  std::vector<std::int64_t> offsets(3);
  const std::vector<std::int64_t> lengths = {2, -1};
  EXPECT_EQ(message_of([&] { offsets_from_lengths(ctx, view_of(lengths), view_of(offsets)); }),
            "offsets_from_lengths: sequence 1 has length -1; a length must not be negative");
  const std::vector<std::int64_t> down = {0, 3, 2};
  EXPECT_EQ(message_of([&] { last_k_offsets(ctx, view_of(down), 1, view_of(offsets)); }),
            "last_k_offsets: offsets go down from 3 to 2 at sequence 1; each must be at least the "
            "one before");
  EXPECT_EQ(message_of([&] { last_k_offsets(ctx, view_of(down), -1, view_of(offsets)); }),
            "last_k_offsets: k is -1; it must not be negative");
  Batch<float> x({2, 1}, 4, 1);
  Batch<float> y({1, 2}, 4, 1);
  Batch<float> other({1}, 4, 1);
  Batch<float> wide({2, 1}, 5, 1);
  EXPECT_EQ(message_of([&] { jagged_concat<float>(ctx, x.view(), other.view(), x.view()); }),
            "jagged_concat: b has 1 sequences; wanted 2");
  EXPECT_EQ(message_of([&] { jagged_concat<float>(ctx, wide.view(), x.view(), x.view()); }),
            "jagged_concat: a is [3, 5]; wanted [3, 4]");
  EXPECT_EQ(message_of([&] { jagged_split<float>(ctx, x.view(), x.view(), y.view()); }),
            "jagged_split: offset 1 of the joined batch is 2 for parts at 2 and 1; make it with "
            "concat_offsets");
  EXPECT_EQ(message_of([&] { last_k_rows<float>(ctx, x.view(), 1, x.view()); }),
            "last_k_rows: sequence 0 keeps 2 rows; wanted 1, make the offsets with last_k_offsets");
  EXPECT_EQ(message_of([&] { last_k_rows_backward<float>(ctx, x.view(), -2, x.view()); }),
            "last_k_rows_backward: k is -2; it must not be negative");
  EXPECT_EQ(message_of([&] {
              to_padded<float>(ctx, x.view(), {x.view().values.data, {2, 1, 4}});
            }),
            "to_padded: sequence 0 has 2 rows for a padded length of 1; pad to the longest");
  EXPECT_EQ(message_of([&] {
              from_padded<float>(ctx, {nullptr, {2, 2, 4}}, x.view());
            }),
            "from_padded: the padded side has no memory; give it a buffer");
}

}  // namespace
}  // namespace turbogr::ops
