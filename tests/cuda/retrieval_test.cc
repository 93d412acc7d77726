// Retrieval on both devices: the same ids and ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/on_device.h"
#include "turbogr/ops/rows/top_k.h"

namespace turbogr::ops {
namespace {

using test::Placed;
using test::random_tensor;

struct Found {
  std::vector<std::int64_t> ids, count, ranks;
  Tensor scores;
};

struct Question {
  std::int64_t queries, items, width, k;
  bool scaled, excluding;
};

template <class T>
Found ask(const Context& ctx, const Question& q, const Tensor& query, const Tensor& table) {
  using A = Accum<T>;
  const test::Margins margins = q.width % 8 == 0 ? test::Margins{0, 0} : test::kCrooked;
  const Placed<T> queries(ctx, query, margins), items(ctx, table, margins);
  const auto norms = [&](std::int64_t count, std::uint64_t seed) {
    Tensor host = random_tensor<A>({count}, seed);
    for (std::int64_t i = 0; i < count; ++i) {
      host.view<A, 1>()(i) = std::abs(host.view<A, 1>()(i)) + A(0.5);
    }
    return test::place(ctx, host);
  };
  const Tensor query_norms = norms(q.queries, 3), table_norms = norms(q.items, 4);
  PhiloxStream random(5);
  std::vector<std::int64_t> excluded, offsets = {0}, target;
  for (std::int64_t i = 0; i < q.queries; ++i) {
    target.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(q.items))));
    for (std::int64_t e = 0; e < i % 7; ++e) {
      excluded.push_back(
          static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(q.items))));
    }
    if (i % 7 > 3) excluded.push_back(excluded.back());  // twice
    if (i % 3 == 0) excluded.push_back(target.back());   // never excluded
    offsets.push_back(static_cast<std::int64_t>(excluded.size()));
  }
  const Tensor placed_target = test::place(ctx, test::tensor_of(target));
  const Tensor placed_excluded = test::place(ctx, test::tensor_of(excluded));
  const Tensor placed_offsets = test::place(ctx, test::tensor_of(offsets));
  RetrievalInputs<T> in = {.query = queries.rows(), .table = items.rows()};
  in.target = placed_target.view<std::int64_t, 1>();
  if (q.scaled) {
    in.query_inverse_norms = query_norms.view<A, 1>();
    in.table_inverse_norms = table_norms.view<A, 1>();
  }
  if (q.excluding) {
    in.excluded = placed_excluded.view<std::int64_t, 1>();
    in.excluded_offsets = placed_offsets.view<std::int64_t, 1>();
  }
  ctx.workspace().reserve(top_k_workspace_bytes(ctx, q.queries, q.width,
                                                static_cast<std::int64_t>(excluded.size()), q.k));
  Tensor ids(DType::kI64, {q.queries, q.k}, ctx.device());
  Tensor scores(dtype_of<A>(), {q.queries, q.k}, ctx.device());
  Tensor count(DType::kI64, {q.queries}, ctx.device()),
      ranks(DType::kI64, {q.queries}, ctx.device());
  top_k<T>(ctx, in,
           {ids.view<std::int64_t, 2>(), scores.view<A, 2>(), count.view<std::int64_t, 1>()});
  rank_of_target<T>(ctx, in, ranks.view<std::int64_t, 1>());
  return {test::vector_of<std::int64_t>(ctx, ids), test::vector_of<std::int64_t>(ctx, count),
          test::vector_of<std::int64_t>(ctx, ranks), to_host(ctx, scores)};
}

template <class T>
class CudaRetrieval : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(CudaRetrieval, Formats);

// Small whole numbers: products are exact on either device, and ties are many.
template <class T>
Tensor whole_numbers(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Tensor tensor(dtype_of<T>(), {rows, cols});
  PhiloxStream random(seed);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    reinterpret_cast<T*>(tensor.data())[i] =
        convert<T>(static_cast<float>(static_cast<int>(random.below(7)) - 3));
  }
  return tensor;
}

TYPED_TEST(CudaRetrieval, FindsTheHostsItemsAndRanks) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  const Context cpu({.threads = 1}), gpu({.device = Device::kCuda});
  for (const Question& q :
       {Question{5, 9, 8, 4, false, false}, Question{5, 9, 7, 20, false, true},
        Question{40, 3000, 16, 50, false, true}, Question{3, 20000, 8, 300, false, true},
        Question{1100, 700, 24, 10, false, false}}) {
    SCOPED_TRACE(::testing::Message() << q.queries << " queries, " << q.items << " items");
    const Tensor query = whole_numbers<T>(q.queries, q.width, 1);
    const Tensor table = whole_numbers<T>(q.items, q.width, 2);
    const Found host = ask<T>(cpu, q, query, table), device = ask<T>(gpu, q, query, table);
    EXPECT_EQ(device.ids, host.ids);
    EXPECT_EQ(device.count, host.count);
    EXPECT_EQ(device.ranks, host.ranks);
    EXPECT_TRUE(test::same_bits(device.scores, host.scores));
  }
  // With scales the last bit may differ, but not which item is how good.
  const Question q = {30, 9000, 64, 5, true, true};
  const Tensor query = random_tensor<T>({q.queries, q.width}, 1);
  const Tensor table = random_tensor<T>({q.items, q.width}, 2);
  const Found host = ask<T>(cpu, q, query, table), device = ask<T>(gpu, q, query, table);
  EXPECT_LT(test::max_error(device.scores, host.scores), 1e-4);
  for (std::size_t i = 0; i < host.ranks.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(device.ranks[i]), static_cast<double>(host.ranks[i]), 1);
  }
}

TEST(CudaRetrieval, NamesAScoreThatIsNotFiniteAndALargeK) {
  TGR_SKIP_WITHOUT_GPU();
  const Context gpu({.device = Device::kCuda});
  const Question q = {3, 40, 8, 4, false, false};
  Tensor table = whole_numbers<float>(q.items, q.width, 2);
  table.view<float, 2>()(31, 2) = std::numeric_limits<float>::quiet_NaN();
  const Tensor query = whole_numbers<float>(q.queries, q.width, 1);
  EXPECT_EQ(test::message_of([&] { ask<float>(gpu, q, query, table); }),
            "top_k: the score of query 0 against item 31 is not finite; look for overflow or NaN "
            "in the weights, which too high a learning rate leaves");
  Question large = q;
  large.k = 2000;
  EXPECT_EQ(test::message_of([&] { ask<float>(gpu, large, query, query); }),
            "top_k: k is 2000; on a GPU up to 1024 are possible");
}

}  // namespace
}  // namespace turbogr::ops
