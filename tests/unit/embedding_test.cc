#include "turbogr/ops/rows/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/messages.h"
#include "tests/support/simd_levels.h"
#include "tests/support/tolerance.h"

namespace turbogr::ops {
namespace {

using test::element;
using test::message_of;
using test::random_tensor;
using test::view_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Dedup {
  std::vector<std::int64_t> unique, offsets;
  std::vector<std::int32_t> positions, inverse;
  std::int64_t num_unique = 0;

  Dedup(const Context& ctx, const std::vector<std::int64_t>& ids)
      : unique(ids.size(), -7),
        offsets(ids.size() + 1, -7),
        positions(ids.size(), -7),
        inverse(ids.size(), -7) {
    ctx.workspace().reserve(dedup_ids_workspace_bytes(static_cast<std::int64_t>(ids.size())));
    num_unique = dedup_ids(ctx, view_of(ids), output());
  }
  DedupOutput output() {
    return {view_of(unique), view_of(offsets), view_of(positions), view_of(inverse)};
  }
  IdGroups groups() { return output().first(num_unique); }
};

std::vector<std::int64_t> random_ids(std::int64_t count, std::uint64_t bound, std::uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int64_t>(random.below(bound)));
  }
  return ids;
}

template <class T>
void poison(Tensor& tensor) {
  T* data = reinterpret_cast<T*>(tensor.data());
  for (std::int64_t i = 0; i < tensor.size(); ++i) data[i] = convert<T>(static_cast<float>(kNan));
}

TEST(DedupIds, GroupsPositionsInInputOrder) {
  const Context ctx({.threads = 2});
  // Few bits, more than one radix digit, more than 32 bits, one value only, none at all.
  for (const auto& [count, bound] : std::vector<std::pair<std::int64_t, std::uint64_t>>{
           {0, 1}, {1, 1}, {7, 3}, {1000, 1}, {40000, 300}, {40000, 1u << 25}, {500, 1ull << 62}}) {
    const auto ids = random_ids(count, bound, 5);
    Dedup dedup(ctx, ids);
    std::map<std::int64_t, std::vector<std::int32_t>> want;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      want[ids[i]].push_back(static_cast<std::int32_t>(i));
    }
    ASSERT_EQ(dedup.num_unique, static_cast<std::int64_t>(want.size()));
    std::size_t u = 0;
    for (const auto& [id, positions] : want) {
      ASSERT_EQ(dedup.unique[u], id);
      const std::vector<std::int32_t> got(dedup.positions.begin() + dedup.offsets[u],
                                          dedup.positions.begin() + dedup.offsets[u + 1]);
      ASSERT_EQ(got, positions);
      for (const std::int32_t p : positions) {
        ASSERT_EQ(dedup.inverse[static_cast<std::size_t>(p)], static_cast<std::int32_t>(u));
      }
      ++u;
    }
    EXPECT_EQ(dedup.offsets[u], count);
  }
}

TEST(DedupIds, SaysWhatIsWrong) {
  const Context ctx;
  EXPECT_EQ(message_of([&] {
              Dedup(ctx, {3, 4, -2, -1});
            }),
            "dedup_ids: id -2 at position 2; ids must be at least 0 and below 2^63 - 1");
  std::vector<std::int64_t> ids = {1, 2};
  std::vector<std::int64_t> three(3), two(2);
  std::vector<std::int32_t> small(2), one(1);
  const auto call = [&](const DedupOutput& output) {
    return message_of([&] {
      dedup_ids(ctx, View<const std::int64_t, 1>{ids.data(), {2}}, output);
    });
  };
  EXPECT_EQ(call({view_of(three), view_of(three), view_of(small), view_of(small)}),
            "dedup_ids: unique has 3 elements; wanted 2");
  EXPECT_EQ(call({view_of(two), view_of(two), view_of(small), view_of(small)}),
            "dedup_ids: offsets has 2 elements; wanted 3");
  EXPECT_EQ(call({view_of(two), view_of(three), view_of(one), view_of(small)}),
            "dedup_ids: positions has 1 elements; wanted 2");
  EXPECT_EQ(call({view_of(two), view_of(three), view_of(small), view_of(one)}),
            "dedup_ids: inverse has 1 elements; wanted 2");
  const View<const std::int64_t, 1> huge = {ids.data(), {std::int64_t{1} << 31}};
  EXPECT_EQ(message_of([&] { dedup_ids(ctx, huge, {}); }),
            "dedup_ids: 2147483648 ids; at most 2^31 - 1 fit one call, cut the batch");
}

template <class T, class Out, class Index>
void check_gather(const Context& ctx, std::int64_t width) {
  const Tensor table = random_tensor<T>({9, width + 3}, 4);
  const Rows<const T> slice = Rows<const T>(table.view<T, 2>()).columns(2, width);
  const std::vector<Index> ids = {8, 0, 3, 3, 8, 1};
  Tensor out(dtype_of<Out>(), {6, width});
  poison<Out>(out);
  gather_rows<T, Out, Index>(ctx, slice, {ids.data(), {6}}, out.view<Out, 2>());
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t c = 0; c < width; ++c) {
      const Out want = convert<Out>(slice(ids[static_cast<std::size_t>(i)], c));
      EXPECT_EQ(std::memcmp(&want, &out.view<Out, 2>()(i, c), sizeof want), 0);
    }
  }
}

TEST(GatherRows, CopiesAndConvertsAtEveryWidthAndInstructionSet) {
  for (const SimdLevel simd : test::simd_levels()) {
    const Context ctx({.threads = 2, .simd = simd});
    for (const std::int64_t width : {1, 7, 50, 64}) {
      check_gather<double, double, std::int64_t>(ctx, width);
      check_gather<float, float, std::int32_t>(ctx, width);
      check_gather<bf16, bf16, std::int64_t>(ctx, width);
      check_gather<float, bf16, std::int64_t>(ctx, width);
      check_gather<float, bf16, std::int32_t>(ctx, width);
      check_gather<f16, float, std::int64_t>(ctx, width);
      check_gather<f16, bf16, std::int64_t>(ctx, width);
    }
  }
}

TEST(GatherRows, NamesTheFirstIdOutOfRangeAndWritesNothing) {
  const Context ctx({.threads = 3});
  const Tensor table = random_tensor<float>({5, 4}, 1);
  std::vector<std::int64_t> ids(50000, 4);
  ids[49999] = -1;
  ids[30000] = 5;
  ids[30001] = 99;
  Tensor out(DType::kF32, {50000, 4});
  EXPECT_EQ(message_of([&] {
              gather_rows<float>(ctx, table.view<float, 2>(), view_of(ids), out.view<float, 2>());
            }),
            "gather_rows: id 5 at position 30000 for a table of 5 rows; ids must be at least 0 and "
            "below that");
  EXPECT_EQ(test::max_magnitude(out), 0.0);
  Tensor narrow(DType::kF32, {2, 3});
  const std::vector<std::int64_t> two = {0, 1};
  EXPECT_EQ(message_of([&] {
              gather_rows<float>(ctx, table.view<float, 2>(), view_of(two),
                                 narrow.view<float, 2>());
            }),
            "gather_rows: out is [2, 3]; wanted [2, 4]");
}

template <class T>
class EmbeddingGradientOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(EmbeddingGradientOf, Formats);

// Sums in input order, so the fast kernels must give the plain loop's bits.
TYPED_TEST(EmbeddingGradientOf, SumsDuplicatesInInputOrder) {
  using T = TypeParam;
  for (const SimdLevel simd : test::simd_levels()) {
    const Context ctx({.threads = 2, .simd = simd});
    for (const std::int64_t width : {1, 7, 50, 129, 300}) {
      // One id takes most positions: the path that cuts a group by columns.
      auto ids = random_ids(3500, 40, 8);
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i % 10 < 7 ? 17 : ids[i];
      Dedup dedup(ctx, ids);
      const Tensor drows = random_tensor<T>({3500, width}, 2);
      Tensor want(dtype_of<Accum<T>>(), {40, width});
      for (std::int64_t i = 0; i < 3500; ++i) {
        for (std::int64_t c = 0; c < width; ++c) {
          want.view<Accum<T>, 2>()(ids[static_cast<std::size_t>(i)], c) +=
              static_cast<Accum<T>>(element(drows, i * width + c));
        }
      }
      Tensor sums(dtype_of<Accum<T>>(), {dedup.num_unique, width});
      poison<Accum<T>>(sums);
      sum_duplicate_rows<T>(ctx, drows.view<T, 2>(), dedup.groups(), sums.view<Accum<T>, 2>());
      for (std::int64_t u = 0; u < dedup.num_unique; ++u) {
        for (std::int64_t c = 0; c < width; ++c) {
          ASSERT_EQ((sums.view<Accum<T>, 2>()(u, c)),
                    (want.view<Accum<T>, 2>()(dedup.unique[static_cast<std::size_t>(u)], c)))
              << name_of(simd) << " width " << width;
        }
      }
    }
  }
}

TYPED_TEST(EmbeddingGradientOf, ScattersOntoANonZeroStart) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  const std::vector<std::int64_t> ids = {5, 2, 5, 5, 0};
  Dedup dedup(ctx, ids);
  const Tensor drows = random_tensor<T>({5, 50}, 3);
  Tensor dtable = random_tensor<Accum<T>>({7, 50}, 4);
  Tensor want = test::converted<Accum<T>, Accum<T>>(dtable);
  for (std::int64_t i = 0; i < 5; ++i) {
    for (std::int64_t c = 0; c < 50; ++c) {
      want.view<Accum<T>, 2>()(ids[static_cast<std::size_t>(i)], c) +=
          static_cast<Accum<T>>(element(drows, i * 50 + c));
    }
  }
  scatter_add_rows<T>(ctx, drows.view<T, 2>(), dedup.groups(), dtable.view<Accum<T>, 2>());
  EXPECT_EQ(std::memcmp(want.data(), dtable.data(), want.bytes()), 0);
}

TEST(EmbeddingGradient, HandlesNoIds) {
  const Context ctx({.threads = 2});
  Dedup dedup(ctx, {});
  Tensor sums(DType::kF32, {0, 8});
  Tensor dtable(DType::kF32, {3, 8});
  sum_duplicate_rows<float>(ctx, Rows<const float>(nullptr, 0, 8, 8), dedup.groups(),
                            sums.view<float, 2>());
  scatter_add_rows<float>(ctx, Rows<const float>(nullptr, 0, 8, 8), dedup.groups(),
                          dtable.view<float, 2>());
  EXPECT_EQ(test::max_magnitude(dtable), 0.0);
}

TEST(EmbeddingGradient, SaysWhatIsWrong) {
  const Context ctx;
  Dedup dedup(ctx, {5, 2, 5});
  const Tensor drows = random_tensor<float>({3, 4}, 3);
  Tensor small(DType::kF32, {5, 4});
  EXPECT_EQ(message_of([&] {
              scatter_add_rows<float>(ctx, drows.view<float, 2>(), dedup.groups(),
                                      small.view<float, 2>());
            }),
            "scatter_add_rows: id 5 for a table of 5 rows; ids must be below the table's size");
  EXPECT_EQ(message_of([&] {
              sum_duplicate_rows<float>(ctx, drows.view<float, 2>(), dedup.groups(),
                                        small.view<float, 2>());
            }),
            "sum_duplicate_rows: dunique is [5, 4]; wanted [2, 4]");
  IdGroups groups = dedup.groups();
  groups.unique.shape[0] = 1;
  EXPECT_EQ(message_of([&] {
              sum_duplicate_rows<float>(ctx, drows.view<float, 2>(), groups,
                                        small.view<float, 2>());
            }),
            "sum_duplicate_rows: unique has 1 elements; wanted 2");
}

TEST(PlaceRows, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  const Tensor rows = random_tensor<float>({2, 4}, 3);
  Tensor out(DType::kF32, {3, 4});
  const std::vector<std::int32_t> places = {2, 3};
  EXPECT_EQ(
      message_of([&] {
        place_rows<float>(ctx, rows.view<float, 2>(), {places.data(), {2}}, out.view<float, 2>());
      }),
      "place_rows: place 3 of row 1 for 3 rows of out; it must be at least 0 and below that");
  EXPECT_EQ(test::max_magnitude(out), 0.0);
  EXPECT_EQ(
      message_of([&] {
        place_rows<float>(ctx, rows.view<float, 2>(), {places.data(), {1}}, out.view<float, 2>());
      }),
      "place_rows: places has 1 elements; wanted 2");
}

}  // namespace
}  // namespace turbogr::ops
