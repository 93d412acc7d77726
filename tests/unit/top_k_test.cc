#include "turbogr/ops/rows/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
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

template <class T>
struct Retrieval {
  using A = Accum<T>;
  Tensor query, table, query_inverse, table_inverse;
  std::vector<std::int64_t> excluded, offsets, target;

  Retrieval(std::int64_t queries, std::int64_t items, std::int64_t width)
      : query(random_tensor<T>({queries, width}, 1)),
        table(random_tensor<T>({items, width}, 2)),
        query_inverse(random_tensor<A>({queries}, 3)),
        table_inverse(random_tensor<A>({items}, 4)),
        offsets({0}) {
    PhiloxStream random(5);
    for (std::int64_t q = 0; q < queries; ++q) {
      for (std::int64_t e = 0; e < q % 7; ++e) {
        excluded.push_back(
            static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(items))));
      }
      offsets.push_back(static_cast<std::int64_t>(excluded.size()));
      target.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(items))));
      // The target among the excluded: it stays.
      if (q % 7 > 3) excluded.back() = target.back();
    }
    // Ties: rows that are equal score equal.
    for (std::int64_t v = 3; v < items; v += 4) {
      std::memcpy(table.data() + static_cast<std::size_t>(v * width) * sizeof(T),
                  table.data() + static_cast<std::size_t>(v / 2 * width) * sizeof(T),
                  static_cast<std::size_t>(width) * sizeof(T));
      table_inverse.view<A, 1>()(v) = table_inverse.view<A, 1>()(v / 2);
    }
  }

  RetrievalInputs<T> inputs() const {
    return {.query = query.view<T, 2>(),
            .table = table.view<T, 2>(),
            .query_inverse_norms = query_inverse.view<A, 1>(),
            .table_inverse_norms = table_inverse.view<A, 1>(),
            .excluded = {excluded.data(), {static_cast<std::int64_t>(excluded.size())}},
            .excluded_offsets = view_of(offsets),
            .target = {target.data(), {static_cast<std::int64_t>(target.size())}}};
  }
  bool is_excluded(std::int64_t q, std::int64_t v) const {
    if (v == target[static_cast<std::size_t>(q)]) return false;
    const auto begin = excluded.begin() + offsets[static_cast<std::size_t>(q)];
    const auto end = excluded.begin() + offsets[static_cast<std::size_t>(q + 1)];
    return std::find(begin, end, v) != end;
  }
  double score(std::int64_t q, std::int64_t v) const {
    const std::int64_t width = query.shape()[1];
    double sum = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      sum += element(query, q * width + c) * element(table, v * width + c);
    }
    return sum * element(query_inverse, q) * element(table_inverse, v);
  }
};

template <class T>
struct Best {
  std::vector<std::int64_t> ids, count;
  std::vector<Accum<T>> scores;

  Best(const Context& ctx, const RetrievalInputs<T>& inputs, std::int64_t k)
      : ids(static_cast<std::size_t>(inputs.query.rows * k), -9),
        count(static_cast<std::size_t>(inputs.query.rows), -9),
        scores(ids.size(), std::numeric_limits<Accum<T>>::quiet_NaN()) {
    ctx.workspace().reserve(top_k_workspace_bytes(ctx, inputs.query.rows, inputs.query.cols,
                                                  inputs.excluded.shape[0], k));
    const std::int64_t queries = inputs.query.rows;
    top_k<T>(ctx, inputs,
             {{ids.data(), {queries, k}}, {scores.data(), {queries, k}}, view_of(count)});
  }
};

template <class T>
class TopKOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(TopKOf, Formats);

// Ranks and picks are checked against the operator's own scores of all items, which are checked
// against double: near-ties may fall either way, exact ties may not.
TYPED_TEST(TopKOf, FindsTheBestAndTheRankAtEveryWidthAndInstructionSet) {
  using T = TypeParam;
  using A = Accum<T>;
  for (const SimdLevel simd : test::simd_levels()) {
    const Context ctx({.threads = 2, .simd = simd});
    for (const std::int64_t width : {1, 7, 50, 64}) {
      for (const auto& [queries, items] :
           std::vector<std::pair<std::int64_t, std::int64_t>>{{11, 1}, {19, 300}, {400, 20}}) {
        SCOPED_TRACE(testing::Message()
                     << name_of(simd) << " width " << width << " items " << items);
        const Retrieval<T> retrieval(queries, items, width);
        RetrievalInputs<T> everything = retrieval.inputs();
        everything.excluded_offsets = {};
        const Best<T> all(ctx, everything, items);
        Tensor scores(dtype_of<A>(), {queries, items});
        Tensor reference(DType::kF64, {queries, items});
        Tensor plain(dtype_of<A>(), {queries, items});
        for (std::int64_t q = 0; q < queries; ++q) {
          ASSERT_EQ(all.count[static_cast<std::size_t>(q)], items);
          for (std::int64_t j = 0; j < items; ++j) {
            const auto at = static_cast<std::size_t>(q * items + j);
            scores.view<A, 2>()(q, all.ids[at]) = all.scores[at];
            reference.view<double, 2>()(q, j) = retrieval.score(q, j);
            A sum = 0;
            for (std::int64_t c = 0; c < width; ++c) {
              sum += static_cast<A>(element(retrieval.query, q * width + c)) *
                     static_cast<A>(element(retrieval.query_inverse, q)) *
                     (static_cast<A>(element(retrieval.table, j * width + c)) *
                      static_cast<A>(element(retrieval.table_inverse, j)));
            }
            plain.view<A, 2>()(q, j) = sum;
          }
        }
        EXPECT_TRUE(test::as_close_as_plain(scores, plain, reference));

        const std::int64_t k = 10;
        const Best<T> best(ctx, retrieval.inputs(), k);
        std::vector<std::int64_t> ranks(static_cast<std::size_t>(queries), -9);
        rank_of_target<T>(ctx, retrieval.inputs(), view_of(ranks));
        for (std::int64_t q = 0; q < queries; ++q) {
          std::vector<std::int64_t> order;
          const auto value = [&](std::int64_t v) { return scores.view<A, 2>()(q, v); };
          std::int64_t rank = 1;
          for (std::int64_t v = 0; v < items; ++v) {
            if (retrieval.is_excluded(q, v)) continue;
            order.push_back(v);
            rank += value(v) > value(retrieval.target[static_cast<std::size_t>(q)]) ? 1 : 0;
          }
          ASSERT_EQ(ranks[static_cast<std::size_t>(q)], rank);
          std::stable_sort(order.begin(), order.end(),
                           [&](std::int64_t a, std::int64_t b) { return value(a) > value(b); });
          const std::int64_t count = std::min(k, static_cast<std::int64_t>(order.size()));
          ASSERT_EQ(best.count[static_cast<std::size_t>(q)], count);
          for (std::int64_t j = 0; j < k; ++j) {
            const auto at = static_cast<std::size_t>(q * k + j);
            if (j < count) {
              ASSERT_EQ(best.ids[at], order[static_cast<std::size_t>(j)]);
              ASSERT_EQ(best.scores[at], value(best.ids[at]));
            } else {
              ASSERT_EQ(best.ids[at], -1);
              ASSERT_EQ(best.scores[at], -std::numeric_limits<A>::infinity());
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(TopKOf, EqualItemsComeByIdAndDoNotLowerTheRank) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  Retrieval<T> retrieval(9, 300, 33);
  for (std::int64_t v = 0; v < 300; ++v) {
    for (std::int64_t c = 0; c < 33; ++c) {
      retrieval.table.template view<T, 2>()(v, c) = retrieval.table.template view<T, 2>()(0, c);
    }
  }
  RetrievalInputs<T> inputs = retrieval.inputs();
  inputs.table_inverse_norms = {};
  inputs.query_inverse_norms = {};
  inputs.excluded_offsets = {};
  const Best<T> best(ctx, inputs, 4);
  std::vector<std::int64_t> ranks(9);
  rank_of_target<T>(ctx, inputs, view_of(ranks));
  for (std::size_t q = 0; q < 9; ++q) {
    EXPECT_EQ(ranks[q], 1);
    for (std::size_t j = 0; j < 4; ++j) {
      EXPECT_EQ(best.ids[q * 4 + j], static_cast<std::int64_t>(j));
    }
  }
}

// A table in parts, as ranks hold it: what the parts count is what the whole does, ties included.
TYPED_TEST(TopKOf, RanksOverPartsAddUp) {
  using T = TypeParam;
  using A = Accum<T>;
  const Context ctx({.threads = 2});
  ctx.workspace().reserve(top_k_workspace_bytes(ctx, 40, 33, 400, 0));
  constexpr std::int64_t kItems = 700, kWidth = 33, kParts = 3;
  const Retrieval<T> whole(40, kItems, kWidth);
  std::vector<std::int64_t> wanted(40), sums(40, 1);
  rank_of_target<T>(ctx, whole.inputs(), view_of(wanted));
  Tensor target_rows(dtype_of<T>(), {40, kWidth}), target_inverse(dtype_of<A>(), {40});
  for (std::int64_t q = 0; q < 40; ++q) {
    const std::int64_t target = whole.target[static_cast<std::size_t>(q)];
    for (std::int64_t c = 0; c < kWidth; ++c) {
      target_rows.view<T, 2>()(q, c) = whole.table.template view<T, 2>()(target, c);
    }
    target_inverse.view<A, 1>()(q) = whole.table_inverse.template view<A, 1>()(target);
  }
  for (std::int64_t part = 0; part < kParts; ++part) {
    std::vector<std::int64_t> ids;
    for (std::int64_t v = part; v < kItems; v += kParts) ids.push_back(v);
    Tensor table(dtype_of<T>(), {std::ssize(ids), kWidth}),
        inverse(dtype_of<A>(), {std::ssize(ids)});
    for (std::int64_t row = 0; row < std::ssize(ids); ++row) {
      const std::int64_t id = ids[static_cast<std::size_t>(row)];
      for (std::int64_t c = 0; c < kWidth; ++c) {
        table.view<T, 2>()(row, c) = whole.table.template view<T, 2>()(id, c);
      }
      inverse.view<A, 1>()(row) = whole.table_inverse.template view<A, 1>()(id);
    }
    std::vector<std::int64_t> excluded, offsets = {0}, target;
    for (std::size_t q = 0; q < 40; ++q) {
      for (auto i = static_cast<std::size_t>(whole.offsets[q]);
           i < static_cast<std::size_t>(whole.offsets[q + 1]); ++i) {
        if (whole.excluded[i] % kParts == part) excluded.push_back(whole.excluded[i] / kParts);
      }
      offsets.push_back(std::ssize(excluded));
      target.push_back(whole.target[q] % kParts == part ? whole.target[q] / kParts : -1);
    }
    RetrievalInputs<T> inputs = whole.inputs();
    inputs.table = table.view<T, 2>();
    inputs.table_inverse_norms = inverse.view<A, 1>();
    inputs.excluded = view_of(excluded);
    inputs.excluded_offsets = view_of(offsets);
    inputs.target = view_of(target);
    inputs.target_rows = target_rows.view<T, 2>();
    inputs.target_inverse_norms = target_inverse.view<A, 1>();
    std::vector<std::int64_t> ranks(40);
    rank_of_target<T>(ctx, inputs, view_of(ranks));
    for (std::size_t q = 0; q < 40; ++q) sums[q] += ranks[q] - 1;
  }
  EXPECT_EQ(sums, wanted);
}

TYPED_TEST(TopKOf, NamesTheScoreThatIsNotFinite) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Retrieval<T> retrieval(20, 700, 8);
    retrieval.table.template view<T, 2>()(600, 3) = convert<T>(value);
    retrieval.query.template view<T, 2>()(7, 0) = convert<T>(value);
    EXPECT_EQ(message_of([&] { Best<T>(ctx, retrieval.inputs(), 3); }),
              "top_k: the score of query 7 against item 0 is not finite; look for overflow or NaN "
              "in the weights, which too high a learning rate leaves");
    retrieval.query.template view<T, 2>()(7, 0) = convert<T>(0.0f);
    std::vector<std::int64_t> ranks(20);
    EXPECT_EQ(message_of([&] { rank_of_target<T>(ctx, retrieval.inputs(), view_of(ranks)); }),
              "rank_of_target: the score of query 0 against item 600 is not finite; look for "
              "overflow or NaN in the weights, which too high a learning rate leaves");
  }
}

// Rows of another format than the queries', and some of them alone, score as a copy of them would,
// to the bit.
template <class T, class Stored>
void check_reads_where_rows_lie(SimdLevel simd) {
  using A = Accum<T>;
  const Context ctx({.threads = 2, .simd = simd});
  for (const std::int64_t width : {7, 64}) {
    constexpr std::int64_t kRows = 700, kQueries = 20;
    const Tensor table = random_tensor<Stored>({kRows, width}, 11);
    std::vector<std::int64_t> all(kRows), some;
    std::iota(all.begin(), all.end(), 0);
    for (std::int64_t row = 1; row < kRows; row += row % 3 + 1) some.push_back(row);
    for (const std::vector<std::int64_t>* rows : {&all, &some}) {
      Retrieval<T> copied(kQueries, std::ssize(*rows), width);
      for (std::size_t i = 0; i < rows->size(); ++i) {
        for (std::int64_t c = 0; c < width; ++c) {
          copied.table.template view<T, 2>()(static_cast<std::int64_t>(i), c) =
              convert<T>(table.view<Stored, 2>()((*rows)[i], c));
        }
      }
      RetrievalInputs<T> there = copied.inputs();
      there.table = table.view<Stored, 2>();
      if (rows == &some) there.chosen = view_of(some);
      const Best<T> wanted(ctx, copied.inputs(), 12), found(ctx, there, 12);
      EXPECT_EQ(found.ids, wanted.ids) << name_of(simd) << " width " << width;
      EXPECT_EQ(found.count, wanted.count);
      EXPECT_EQ(
          std::memcmp(found.scores.data(), wanted.scores.data(), wanted.scores.size() * sizeof(A)),
          0);
      std::vector<std::int64_t> wanted_ranks(kQueries), found_ranks(kQueries, -9);
      rank_of_target<T>(ctx, copied.inputs(), view_of(wanted_ranks));
      rank_of_target<T>(ctx, there, view_of(found_ranks));
      EXPECT_EQ(found_ranks, wanted_ranks);
    }
  }
}

TEST(TopK, ReadsRowsWhereTheyLieAsACopyOfThem) {
  for (const SimdLevel simd : test::simd_levels()) {
    check_reads_where_rows_lie<double, double>(simd);
    check_reads_where_rows_lie<float, float>(simd);
    check_reads_where_rows_lie<float, bf16>(simd);
    check_reads_where_rows_lie<float, f16>(simd);
    check_reads_where_rows_lie<bf16, float>(simd);
    check_reads_where_rows_lie<bf16, bf16>(simd);
    check_reads_where_rows_lie<bf16, f16>(simd);
  }
}

TEST(TopK, TakesNoQueriesAndNoItems) {
  const Context ctx({.threads = 2});
  const Tensor none(DType::kF32, {0, 4});
  const Tensor some = random_tensor<float>({3, 4}, 1);
  const Best<float> no_items(ctx, {.query = some.view<float, 2>(), .table = none.view<float, 2>()},
                             2);
  EXPECT_EQ(no_items.count, (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(no_items.ids, std::vector<std::int64_t>(6, -1));
  const Best<float> no_queries(ctx,
                               {.query = none.view<float, 2>(), .table = some.view<float, 2>()}, 2);
}

TEST(TopK, SaysWhatIsWrong) {
  const Context ctx({.threads = 2});
  Retrieval<float> good(3, 20, 4);
  const auto call = [&](const RetrievalInputs<float>& inputs) {
    return message_of([&] { Best<float>(ctx, inputs, 2); });
  };
  EXPECT_EQ(message_of([&] { Best<float>(ctx, good.inputs(), 0); }),
            "top_k: k is 0; ask for at least one item");
  RetrievalInputs<float> inputs = good.inputs();
  inputs.table.cols = 3;
  EXPECT_EQ(call(inputs), "top_k: table is [20, 3]; wanted [20, 4]");
  inputs = good.inputs();
  inputs.query_inverse_norms.shape[0] = 2;
  EXPECT_EQ(call(inputs), "top_k: query_inverse_norms has 2 elements; wanted 3");
  inputs = good.inputs();
  inputs.table_inverse_norms.shape[0] = 2;
  EXPECT_EQ(call(inputs), "top_k: table_inverse_norms has 2 elements; wanted 20");
  inputs = good.inputs();
  const std::vector<std::int64_t> outside = {1, 20}, three = {5, 6, 7};
  inputs.chosen = view_of(outside);
  EXPECT_EQ(call(inputs),
            "top_k: chosen id 20 at position 1 for a table of 20 rows; ids must be at least 0 and "
            "below that");
  inputs.chosen = view_of(three);
  EXPECT_EQ(call(inputs), "top_k: table_inverse_norms has 20 elements; wanted 3");
  inputs = good.inputs();
  inputs.table = Tensor(DType::kF64, {20, 4}).view<double, 2>();
  EXPECT_EQ(call(inputs), "a table in f64 to be read as f32; f64 goes with f64 alone");
  good.excluded = {3, 4, 20};
  good.offsets = {0, 1, 1, 3};
  EXPECT_EQ(call(good.inputs()),
            "top_k: excluded id 20 at position 2 for a table of 20 rows; ids must be at least 0 "
            "and below that");
  good.excluded = {3, 4, 19};
  good.offsets = {0, 2, 1, 3};
  EXPECT_NE(call(good.inputs()).find("offsets go down"), std::string::npos);
  good.offsets = {0, 1, 3};
  EXPECT_EQ(call(good.inputs()), "top_k: excluded_offsets has 3 elements; wanted 4");
  good.offsets = {0, 1, 1, 3};
  good.target = {1, -4, 2};
  EXPECT_NE(call(good.inputs()).find("target id -4 at position 1"), std::string::npos);
  inputs = good.inputs();
  inputs.target = {};
  std::vector<std::int64_t> ranks(3);
  EXPECT_EQ(message_of([&] { rank_of_target<float>(ctx, inputs, view_of(ranks)); }),
            "rank_of_target: no target given; give one a query");
}

}  // namespace
}  // namespace turbogr::ops
