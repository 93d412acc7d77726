// Lookup, duplicates and their gradient sums on both devices.
#include "turbogr/ops/rows/embedding.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/on_device.h"
#include "turbogr/ops/rows/move_rows.h"

namespace turbogr::ops {
namespace {

using test::Margins;
using test::Placed;
using test::random_tensor;

std::vector<std::int64_t> random_ids(std::int64_t count, std::uint64_t bound, std::uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int64_t>(random.below(bound)));
  }
  return ids;
}

struct Dedup {
  Tensor unique, offsets, positions, inverse;
  std::int64_t num_unique = 0;

  Dedup(const Context& ctx, const std::vector<std::int64_t>& ids)
      : unique(DType::kI64, {size_of(ids)}, ctx.device()),
        offsets(DType::kI64, {size_of(ids) + 1}, ctx.device()),
        positions(DType::kI32, {size_of(ids)}, ctx.device()),
        inverse(DType::kI32, {size_of(ids)}, ctx.device()) {
    ctx.workspace().reserve(dedup_ids_workspace_bytes(ctx, size_of(ids)));
    const Tensor placed = test::place(ctx, test::tensor_of(ids));
    num_unique = dedup_ids(ctx, placed.view<std::int64_t, 1>(), output());
  }
  DedupOutput output() {
    return {unique.view<std::int64_t, 1>(), offsets.view<std::int64_t, 1>(),
            positions.view<std::int32_t, 1>(), inverse.view<std::int32_t, 1>()};
  }
  static std::int64_t size_of(const std::vector<std::int64_t>& ids) {
    return static_cast<std::int64_t>(ids.size());
  }
};

TEST(CudaEmbedding, DedupGivesTheHostsGroups) {
  TGR_SKIP_WITHOUT_GPU();
  const Context cpu({.threads = 1}), gpu({.device = Device::kCuda});
  for (const auto& ids : {std::vector<std::int64_t>{}, std::vector<std::int64_t>{7},
                          random_ids(1000, 30, 1), random_ids(5000, 1ull << 40, 2),
                          std::vector<std::int64_t>(700, 3), random_ids(70000, 50000, 3)}) {
    SCOPED_TRACE(ids.size());
    Dedup host(cpu, ids), device(gpu, ids);
    ASSERT_EQ(device.num_unique, host.num_unique);
    const auto first = [&](auto values, std::int64_t count) {
      values.resize(static_cast<std::size_t>(count));
      return values;
    };
    const std::int64_t u = host.num_unique;
    EXPECT_EQ(first(test::vector_of<std::int64_t>(gpu, device.unique), u),
              first(test::vector_of<std::int64_t>(cpu, host.unique), u));
    EXPECT_EQ(first(test::vector_of<std::int64_t>(gpu, device.offsets), u + 1),
              first(test::vector_of<std::int64_t>(cpu, host.offsets), u + 1));
    EXPECT_EQ(test::vector_of<std::int32_t>(gpu, device.positions),
              test::vector_of<std::int32_t>(cpu, host.positions));
    EXPECT_EQ(test::vector_of<std::int32_t>(gpu, device.inverse),
              test::vector_of<std::int32_t>(cpu, host.inverse));
  }
}

template <class T, class Out, class Index>
void check_gather(std::int64_t cols, Margins margins) {
  SCOPED_TRACE(cols);
  const Tensor table = random_tensor<T>({40, cols}, 1);
  std::vector<Index> ids;
  for (const std::int64_t id : random_ids(77, 40, 2)) ids.push_back(static_cast<Index>(id));
  Tensor results[2];
  for (const Device device : test::devices()) {
    const Context ctx({.device = device, .threads = 1});
    const Placed<T> placed(ctx, table, margins);
    const Tensor index = test::place(ctx, test::tensor_of(ids));
    Placed<Out> out(ctx, 77, cols, margins);
    gather_rows<T, Out, Index>(ctx, placed.rows(), index.view<Index, 1>(), out.rows());
    results[device == Device::kCuda] = out.fetch(ctx);
  }
  EXPECT_TRUE(test::same_bits(results[1], results[0]));
}

TEST(CudaEmbedding, GathersTheHostsBits) {
  TGR_SKIP_WITHOUT_GPU();
  for (const std::int64_t cols : {1, 7, 50}) {
    check_gather<float, bf16, std::int64_t>(cols, test::kCrooked);
    check_gather<f16, float, std::int64_t>(cols, test::kCrooked);
    check_gather<double, double, std::int64_t>(cols, test::kCrooked);
  }
  for (const std::int64_t cols : {8, 264, 1024}) {
    check_gather<float, bf16, std::int64_t>(cols, test::kAligned);
    check_gather<f16, bf16, std::int64_t>(cols, test::kAligned);
    check_gather<float, float, std::int64_t>(cols, test::kAligned);
    check_gather<bf16, bf16, std::int32_t>(cols, test::kAligned);
  }
}

TEST(CudaEmbedding, AnIdOutsideTheTableWritesNothing) {
  TGR_SKIP_WITHOUT_GPU();
  const Context ctx({.device = Device::kCuda});
  const Tensor table = test::place(ctx, random_tensor<float>({4, 8}, 1));
  const Tensor ids = test::place(ctx, test::tensor_of(std::vector<std::int64_t>{1, 4, -1, 3}));
  Placed<float> out(ctx, 4, 8, test::kAligned);
  gather_rows<float, float>(ctx, table.view<float, 2>(), ids.view<std::int64_t, 1>(), out.rows());
  const Tensor host = out.fetch(ctx);
  for (std::int64_t r = 0; r < 4; ++r) {
    EXPECT_EQ(std::isnan(test::element(host, r * 8)), r == 1 || r == 2) << r;
  }
}

template <class T>
class CudaGroups : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(CudaGroups, Formats);

// Against sums in double of the same rows: no order of additions is prescribed between devices.
TYPED_TEST(CudaGroups, SumsDuplicatesOfShortAndLongGroups) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  using A = Accum<T>;
  struct Case {
    std::int64_t rows, bound, cols;
  };
  for (const Case& c : {Case{0, 3, 8}, Case{1, 1, 7}, Case{300, 2, 50}, Case{700, 400, 64},
                        Case{1000, 5, 1032}, Case{64, 1, 16}, Case{129, 2, 16}}) {
    SCOPED_TRACE(::testing::Message() << c.rows << " rows of " << c.bound << " ids, " << c.cols);
    const Margins margins = c.cols % 8 == 0 ? test::kAligned : test::kCrooked;
    const auto ids = random_ids(c.rows, static_cast<std::uint64_t>(c.bound), 5);
    const Tensor drows = random_tensor<T>({c.rows, c.cols}, 6);
    const Tensor start = random_tensor<A>({c.bound, c.cols}, 7);
    Tensor exact = test::converted<double, A>(start), plain = test::converted<A, A>(start);
    for (std::int64_t i = 0; i < c.rows; ++i) {
      for (std::int64_t col = 0; col < c.cols; ++col) {
        const double value = test::element(drows, i * c.cols + col);
        exact.view<double, 2>()(ids[static_cast<std::size_t>(i)], col) += value;
        plain.view<A, 2>()(ids[static_cast<std::size_t>(i)], col) += static_cast<A>(value);
      }
    }
    for (const Device device : test::devices()) {
      SCOPED_TRACE(name_of(device));
      const Context ctx({.device = device, .threads = 1});
      Dedup dedup(ctx, ids);
      ctx.workspace().reserve(sum_groups_workspace_bytes<T>(ctx, c.rows, c.cols));
      const IdGroups groups = dedup.output().first(dedup.num_unique);
      const Placed<T> rows(ctx, drows, margins);
      Placed<A> table(ctx, start, margins);
      scatter_add_rows<T>(ctx, rows.rows(), groups, table.rows());
      EXPECT_TRUE(test::matches(table.fetch(ctx), plain, exact));
      // The same sums by themselves, and twice the same bits.
      Placed<A> sums(ctx, dedup.num_unique, c.cols, margins),
          again(ctx, dedup.num_unique, c.cols, margins);
      sum_duplicate_rows<T>(ctx, rows.rows(), groups, sums.rows());
      sum_duplicate_rows<T>(ctx, rows.rows(), groups, again.rows());
      const Tensor first = sums.fetch(ctx);
      EXPECT_TRUE(test::same_bits(first, again.fetch(ctx)));
      const auto unique = test::vector_of<std::int64_t>(ctx, dedup.unique);
      for (std::int64_t u = 0; u < dedup.num_unique; ++u) {
        for (std::int64_t col = 0; col < c.cols; ++col) {
          const std::int64_t at = unique[static_cast<std::size_t>(u)] * c.cols + col;
          const double want = test::element(exact, at) - test::element(start, at);
          ASSERT_NEAR(test::element(first, u * c.cols + col), want,
                      (std::is_same_v<A, double> ? 1e-12 : 2e-4) * (1 + std::abs(want)));
        }
      }
    }
  }
}

template <class T>
void check_places(std::int64_t width) {
  const std::vector<std::int32_t> places = {3, 0, 7, 4};
  const Tensor rows = random_tensor<T>({4, width}, 1), before = random_tensor<T>({9, width}, 2);
  const Margins margins = width % 8 == 0 ? test::kAligned : test::kCrooked;
  for (const Device device : test::devices()) {
    const Context ctx({.device = device, .threads = 2});
    const Placed<T> from(ctx, rows, margins);
    Placed<T> to(ctx, before, margins);
    const Tensor placed = test::place(ctx, test::tensor_of(places));
    place_rows<T>(ctx, from.rows(), placed.view<std::int32_t, 1>(), to.rows());
    const Tensor got = to.fetch(ctx);
    Tensor want = test::converted<T, T>(before);
    for (std::size_t i = 0; i < places.size(); ++i) {
      for (std::int64_t c = 0; c < width; ++c) {
        want.view<T, 2>()(places[i], c) = rows.view<T, 2>()(static_cast<std::int64_t>(i), c);
      }
    }
    EXPECT_TRUE(test::same_bits(got, want)) << name_of(device) << " width " << width;
  }
}

TEST(CudaEmbedding, RowsGoToTheirPlaces) {
  for (const std::int64_t width : {1, 7, 64, 1024}) {
    check_places<float>(width);
    check_places<bf16>(width);
  }
}

// Into a message whose rows stand `unit` columns apart or more, and out of it.
template <class From, class To, class Index>
void check_moves(std::int64_t width, std::int64_t unit) {
  SCOPED_TRACE(width);
  const Tensor table = random_tensor<From>({40, width}, 1);
  std::vector<Index> from;
  std::vector<std::int32_t> to;
  std::int64_t units = 0;
  for (std::int64_t i = 0; i < 77; ++i) {
    from.push_back(static_cast<Index>(i * 13 % 40));
    to.push_back(static_cast<std::int32_t>(units));
    units += width / unit + i % 3;
  }
  const Tensor before = random_tensor<To>({units, unit}, 2);
  Tensor results[2];
  for (const Device device : test::devices()) {
    const Context ctx({.device = device, .threads = 1});
    const Tensor rows = test::place(ctx, table);
    Tensor message = test::place(ctx, before);
    const Tensor sources = test::place(ctx, test::tensor_of(from));
    const Tensor targets = test::place(ctx, test::tensor_of(to));
    move_rows<From, To, Index>(ctx, rows.view<From, 2>(), sources.view<Index, 1>(),
                               Rows<To>(reinterpret_cast<To*>(message.data()), units, width, unit),
                               targets.view<std::int32_t, 1>());
    results[device == Device::kCuda] = to_host(ctx, message);
  }
  EXPECT_TRUE(test::same_bits(results[1], results[0]));
}

TEST(CudaEmbedding, MovesTheHostsBits) {
  TGR_SKIP_WITHOUT_GPU();
  for (const auto& [width, unit] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {21, 7}, {64, 8}, {64, 64}, {1024, 4}}) {
    check_moves<float, float, std::int64_t>(width, unit);
    check_moves<float, bf16, std::int32_t>(width, unit);
    check_moves<float, f16, std::int64_t>(width, unit);
    check_moves<bf16, float, std::int32_t>(width, unit);
    check_moves<bf16, f16, std::int64_t>(width, unit);
    check_moves<f16, bf16, std::int32_t>(width, unit);
    check_moves<f16, f16, std::int64_t>(width, unit);
  }
}

}  // namespace
}  // namespace turbogr::ops
