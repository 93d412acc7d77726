// Laws of the sparse operators: bits do not depend on the number of threads, nor a token's result
// on its neighbours.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/softmax_case.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/top_k.h"

namespace turbogr::ops {
namespace {

using test::Negatives;
using test::random_tensor;
using test::SoftmaxCase;
using test::SoftmaxResult;
using test::view_of;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

template <class T>
class SparseLawsOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(SparseLawsOf, Formats);

TYPED_TEST(SparseLawsOf, SoftmaxGivesTheSameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared, Negatives::kAll}) {
    const SoftmaxCase<T> softmax(
        {.tokens = 700, .items = 90, .width = 37, .negatives = 70, .kind = kind});
    const SoftmaxResult one = softmax.run(Context({.threads = 1}));
    for (const int threads : {2, 3}) {
      const SoftmaxResult many = softmax.run(Context({.threads = threads}));
      EXPECT_TRUE(same_bits(one.loss, many.loss));
      EXPECT_TRUE(same_bits(one.log_sum_exp, many.log_sum_exp));
      EXPECT_TRUE(same_bits(one.dquery, many.dquery));
      EXPECT_TRUE(same_bits(one.ditems, many.ditems));
    }
  }
}

TYPED_TEST(SparseLawsOf, SharingGivesTheSameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  for (const NegativeSharing sharing : {NegativeSharing::kLogits, NegativeSharing::kEmbeddings}) {
    const SoftmaxCase<T> softmax({.tokens = 400, .items = 90, .width = 37, .negatives = 20},
                                 {.sharing = sharing, .sharing_factor = 4});
    const SoftmaxResult one = softmax.run(Context({.threads = 1}));
    for (const int threads : {2, 3}) {
      const SoftmaxResult many = softmax.run(Context({.threads = threads}));
      EXPECT_TRUE(same_bits(one.loss, many.loss));
      EXPECT_TRUE(same_bits(one.dquery, many.dquery));
      EXPECT_TRUE(same_bits(one.ditems, many.ditems));
    }
  }
}

TEST(SharingLaws, SharedEmbeddingsAreTheUnionOfPartnersNegatives) {
  const Context ctx({.threads = 2});
  const SoftmaxCase<double> shared({.tokens = 30, .items = 25, .width = 8, .negatives = 4},
                                   {.sharing = NegativeSharing::kEmbeddings, .sharing_factor = 3});
  SoftmaxCase<double> own({.tokens = 30, .items = 25, .width = 8, .negatives = 12});
  own.positive = shared.positive;
  for (std::size_t place = 0; place < 30; ++place) {
    for (std::size_t j = 0; j < 12; ++j) {
      const auto owner = static_cast<std::size_t>(shared.order[(place + j / 4) % 30]);
      own.negatives[static_cast<std::size_t>(shared.order[place]) * 12 + j] =
          shared.negatives[owner * 4 + j % 4];
    }
  }
  const SoftmaxResult a = shared.run(ctx);
  const SoftmaxResult b = own.run(ctx);
  EXPECT_LT(test::max_error(a.loss, b.loss), 1e-12);
  EXPECT_LT(test::max_error(a.dquery, b.dquery), 1e-11);
  EXPECT_LT(test::max_error(a.ditems, b.ditems), 1e-11);
}

// With every token in the ring, `logits` gives all tokens the same competitors.
TEST(SharingLaws, LogitsSharedByAllHaveOneSumForAll) {
  const Context ctx({.threads = 2});
  SoftmaxCase<double> softmax({.tokens = 6, .items = 60, .width = 8, .negatives = 5},
                              {.sharing = NegativeSharing::kLogits, .sharing_factor = 6});
  for (std::size_t i = 0; i < 6; ++i) softmax.positive[i] = static_cast<std::int32_t>(i);
  for (std::size_t j = 0; j < 30; ++j) softmax.negatives[j] = static_cast<std::int32_t>(6 + j);
  const SoftmaxResult result = softmax.run(ctx);
  const auto negatives_alone = [&](std::int64_t i) {  // e^lse less the token's own positive
    const double lse = test::element(result.log_sum_exp, i);
    return std::exp(lse) - std::exp(lse - test::element(result.loss, i));
  };
  for (std::int64_t i = 1; i < 6; ++i) {
    EXPECT_NEAR(negatives_alone(i) / negatives_alone(0), 1, 1e-9);
  }
}

TYPED_TEST(SparseLawsOf, SoftmaxOfATokenDoesNotDependOnItsNeighbours) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  for (const Negatives kind : {Negatives::kOwn, Negatives::kShared, Negatives::kAll}) {
    const SoftmaxCase<T> batch(
        {.tokens = 60, .items = 40, .width = 21, .negatives = 13, .kind = kind});
    const SoftmaxResult whole = batch.run(ctx);
    for (const std::int64_t i : {0, 31, 59}) {
      SoftmaxCase<T> alone(batch.shape);  // the same seed: the same items
      alone.shape.tokens = 1;
      alone.query = Tensor(dtype_of<T>(), {1, 21});
      const auto row_bytes = 21 * sizeof(T);
      std::memcpy(alone.query.data(), batch.query.data() + static_cast<std::size_t>(i) * row_bytes,
                  row_bytes);
      alone.dloss = Tensor(dtype_of<Accum<T>>(), {1});
      alone.dloss.template view<Accum<T>, 1>()(0) = batch.dloss.template view<Accum<T>, 1>()(i);
      alone.positive = {batch.positive[static_cast<std::size_t>(i)]};
      if (kind == Negatives::kOwn) {
        alone.negatives.assign(batch.negatives.begin() + i * 13,
                               batch.negatives.begin() + (i + 1) * 13);
      }
      const SoftmaxResult single = alone.run(ctx);
      EXPECT_EQ(test::element(single.loss, 0), test::element(whole.loss, i));
      EXPECT_EQ(
          std::memcmp(single.dquery.data(),
                      whole.dquery.data() + static_cast<std::size_t>(i) * row_bytes, row_bytes),
          0);
    }
  }
}

TYPED_TEST(SparseLawsOf, FullSoftmaxIsSampledSoftmaxOverEveryItem) {
  using T = TypeParam;
  const Context ctx({.threads = 2});
  const SoftmaxCase<T> full(
      {.tokens = 70, .items = 290, .width = 21, .negatives = 290, .kind = Negatives::kAll});
  test::SoftmaxShape shape = full.shape;
  shape.kind = Negatives::kShared;
  SoftmaxCase<T> shared(shape);
  shared.negatives.resize(290);
  std::iota(shared.negatives.begin(), shared.negatives.end(), 0);
  const SoftmaxResult a = full.run(ctx);
  const SoftmaxResult b = shared.run(ctx);
  EXPECT_TRUE(same_bits(a.loss, b.loss));
  EXPECT_TRUE(same_bits(a.dquery, b.dquery));
  EXPECT_TRUE(same_bits(a.ditems, b.ditems));
}

TYPED_TEST(SparseLawsOf, EmbeddingGivesTheSameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const std::int64_t count = 50000;
  PhiloxStream random(3);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(i % 3 == 0 ? 5 : static_cast<std::int64_t>(random.below(1000)));
  }
  const Tensor drows = random_tensor<T>({count, 19}, 4);
  Tensor first;
  std::vector<std::int32_t> first_positions;
  for (const int threads : {1, 2, 3}) {
    const Context ctx({.threads = threads, .workspace_bytes = dedup_ids_workspace_bytes(count)});
    std::vector<std::int64_t> unique(ids.size()), offsets(ids.size() + 1);
    std::vector<std::int32_t> positions(ids.size()), inverse(ids.size());
    const DedupOutput output = {view_of(unique), view_of(offsets), view_of(positions),
                                view_of(inverse)};
    const std::int64_t num_unique = dedup_ids(ctx, {ids.data(), {count}}, output);
    Tensor sums(dtype_of<Accum<T>>(), {num_unique, 19});
    sum_duplicate_rows<T>(ctx, drows.view<T, 2>(), output.first(num_unique),
                          sums.view<Accum<T>, 2>());
    if (threads == 1) {
      first = std::move(sums);
      first_positions = positions;
    } else {
      EXPECT_TRUE(same_bits(first, sums));
      EXPECT_EQ(first_positions, positions);
    }
  }
}

TYPED_TEST(SparseLawsOf, TopKGivesTheSameBitsForAnyNumberOfThreadsAndQueriesAlone) {
  using T = TypeParam;
  using A = Accum<T>;
  const Tensor query = random_tensor<T>({100, 27}, 1);
  const Tensor table = random_tensor<T>({900, 27}, 2);
  const auto run = [&](int threads, Rows<const T> rows, Tensor& scores) {
    const std::int64_t count = rows.rows;
    const Context ctx({.threads = threads});
    ctx.workspace().reserve(top_k_workspace_bytes(ctx, count, 27, 0, 5));
    std::vector<std::int64_t> ids(static_cast<std::size_t>(count * 5));
    std::vector<std::int64_t> counts(static_cast<std::size_t>(count));
    scores = Tensor(dtype_of<A>(), {count, 5});
    top_k<T>(ctx, {.query = rows, .table = table.view<T, 2>()},
             {{ids.data(), {count, 5}}, scores.view<A, 2>(), view_of(counts)});
    return ids;
  };
  Tensor one, many, alone;
  const Rows<const T> all = query.view<T, 2>();
  const auto ids = run(1, all, one);
  for (const int threads : {2, 3}) {
    EXPECT_EQ(run(threads, all, many), ids);
    EXPECT_TRUE(same_bits(one, many));
  }
  const auto single = run(2, Rows<const T>(all.row(57), 1, 27, 27), alone);
  EXPECT_TRUE(std::equal(single.begin(), single.end(), ids.begin() + 57 * 5));
  EXPECT_EQ(std::memcmp(alone.data(), one.data() + 57 * 5 * sizeof(A), 5 * sizeof(A)), 0);
}

}  // namespace
}  // namespace turbogr::ops
