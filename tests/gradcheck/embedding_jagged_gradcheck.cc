#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/gradcheck.h"
#include "turbogr/ops/embedding.h"
#include "turbogr/ops/jagged.h"

namespace turbogr::ops {
namespace {

using test::dot;
using test::gradient_gap;
using test::offsets_of;
using test::random_tensor;
using test::view_of;

TEST(GatherRows, BackwardMatchesCentralDifferences) {
  const Context ctx({.threads = 2, .workspace_bytes = dedup_ids_workspace_bytes(6)});
  Tensor table = random_tensor<double>({4, 3}, 1);
  const Tensor dout = random_tensor<double>({6, 3}, 2);
  const std::vector<std::int64_t> ids = {3, 1, 1, 0, 3, 3};
  Tensor out(DType::kF64, {6, 3});
  const auto loss = [&] {
    gather_rows<double>(ctx, table.view<double, 2>(), view_of(ids), out.view<double, 2>());
    return dot(out, dout);
  };
  std::vector<std::int64_t> unique(6), offsets(7);
  std::vector<std::int32_t> positions(6), inverse(6);
  const DedupOutput dedup = {view_of(unique), view_of(offsets), view_of(positions),
                             view_of(inverse)};
  const std::int64_t num_unique = dedup_ids(ctx, view_of(ids), dedup);
  Tensor dtable(DType::kF64, {4, 3});
  scatter_add_rows<double>(ctx, dout.view<double, 2>(), dedup.first(num_unique),
                           dtable.view<double, 2>());
  EXPECT_LT(gradient_gap(table, dtable, loss), 1e-8);
}

TEST(Jagged, BackwardsMatchCentralDifferences) {
  const Context ctx({.threads = 2});
  const auto offsets_a = offsets_of({2, 0, 3});
  const auto offsets_b = offsets_of({1, 2, 0});
  const auto offsets_out = offsets_of({3, 2, 3});
  Tensor a = random_tensor<double>({5, 2}, 1);
  Tensor b = random_tensor<double>({3, 2}, 2);
  Tensor out(DType::kF64, {8, 2});
  const Tensor dout = random_tensor<double>({8, 2}, 3);
  const auto jagged = [](auto& tensor, const std::vector<std::int64_t>& offsets) {
    return Jagged<double>{const_cast<Tensor&>(tensor).template view<double, 2>(), view_of(offsets)};
  };
  const auto concat = [&] {
    jagged_concat<double>(ctx, jagged(a, offsets_a), jagged(b, offsets_b),
                          jagged(out, offsets_out));
    return dot(out, dout);
  };
  Tensor da(DType::kF64, {5, 2});
  Tensor db(DType::kF64, {3, 2});
  jagged_split<double>(ctx, jagged(dout, offsets_out), jagged(da, offsets_a),
                       jagged(db, offsets_b));
  EXPECT_LT(gradient_gap(a, da, concat), 1e-8);
  EXPECT_LT(gradient_gap(b, db, concat), 1e-8);

  const auto offsets_last = offsets_of({2, 2, 2});
  Tensor x = random_tensor<double>({8, 2}, 4);
  Tensor last(DType::kF64, {6, 2});
  const Tensor dlast = random_tensor<double>({6, 2}, 5);
  const auto take_last = [&] {
    last_k_rows<double>(ctx, jagged(x, offsets_out), 2, jagged(last, offsets_last));
    return dot(last, dlast);
  };
  Tensor dx(DType::kF64, {8, 2});
  last_k_rows_backward<double>(ctx, jagged(dlast, offsets_last), 2, jagged(dx, offsets_out));
  EXPECT_LT(gradient_gap(x, dx, take_last), 1e-8);

  Tensor padded(DType::kF64, {3, 4, 2});
  const Tensor dpadded = random_tensor<double>({3, 4, 2}, 6);
  const auto pad = [&] {
    to_padded<double>(ctx, jagged(x, offsets_out), padded.view<double, 3>());
    return dot(padded, dpadded);
  };
  from_padded<double>(ctx, dpadded.view<double, 3>(), jagged(dx, offsets_out));
  EXPECT_LT(gradient_gap(x, dx, pad), 1e-8);
}

}  // namespace
}  // namespace turbogr::ops
