#include <gtest/gtest.h>

#include <vector>

#include "tests/support/data.h"
#include "tests/support/gradcheck.h"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::ops {
namespace {

using test::dot;
using test::gradient_gap;
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

}  // namespace
}  // namespace turbogr::ops
