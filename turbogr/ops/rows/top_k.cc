#include "turbogr/ops/rows/top_k.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/rows/index_range.h"
#include "turbogr/ops/rows/top_k_kernels.h"

namespace turbogr::ops {
namespace {

void check_ids(const Context& ctx, const char* op, const char* name,
               View<const std::int64_t, 1> ids, std::int64_t bound) {
  if (ctx.device() != Device::kCpu) return;
  const std::int64_t bad = first_out_of_range(ctx.pool(), ids.data, ids.shape[0], bound);
  TGR_CHECK(bad < 0, op, ": ", name, " id ", ids(bad < 0 ? 0 : bad), " at position ", bad,
            " for a table of ", bound, " rows; ids must be at least 0 and below that");
}

template <class T>
void check_inputs(const Context& ctx, const char* op, const RetrievalInputs<T>& in) {
  const std::int64_t queries = in.query.rows;
  check_rows(op, "query", in.query, queries, in.query.cols);
  with_rows<T>(in.table,
               [&](auto table) { check_rows(op, "table", table, table.rows, in.query.cols); });
  if (in.chosen.data != nullptr) check_ids(ctx, op, "chosen", in.chosen, in.table.rows);
  const std::int64_t items = in.num_items();
  if (in.query_inverse_norms.data != nullptr) {
    check_vector(op, "query_inverse_norms", in.query_inverse_norms, queries);
  }
  if (in.table_inverse_norms.data != nullptr) {
    check_vector(op, "table_inverse_norms", in.table_inverse_norms, items);
  }
  if (in.excluded_offsets.data != nullptr) {
    check_vector(op, "excluded_offsets", in.excluded_offsets, queries + 1);
    check_offsets(ctx, op, in.excluded_offsets, in.excluded.shape[0]);
    check_ids(ctx, op, "excluded", in.excluded, items);
  }
  if (in.target.data != nullptr) {
    check_vector(op, "target", in.target, queries);
    if (in.target_rows.data == nullptr) check_ids(ctx, op, "target", in.target, items);
  }
  if (in.target_rows.data != nullptr) {
    check_rows(op, "target_rows", in.target_rows, queries, in.query.cols);
    if (in.target_inverse_norms.data != nullptr) {
      check_vector(op, "target_inverse_norms", in.target_inverse_norms, queries);
    }
  }
}

}  // namespace

template <class T>
void top_k(const Context& ctx, const RetrievalInputs<T>& inputs, const TopKOutput<T>& output) {
  check_inputs(ctx, "top_k", inputs);
  const std::int64_t k = output.ids.shape[1];
  check_rows("top_k", "ids", Rows<std::int64_t>(output.ids), inputs.query.rows, k);
  check_rows("top_k", "scores", Rows<Accum<T>>(output.scores), inputs.query.rows, k);
  check_vector("top_k", "count", output.count, inputs.query.rows);
  TGR_CHECK(k >= 1, "top_k: k is ", k, "; ask for at least one item");
  on_device(ctx, [&](auto device) { kernels::top_k<T>(device, inputs, output); });
}

template <class T>
void rank_of_target(const Context& ctx, const RetrievalInputs<T>& inputs,
                    View<std::int64_t, 1> ranks) {
  check_inputs(ctx, "rank_of_target", inputs);
  check_vector("rank_of_target", "ranks", ranks, inputs.query.rows);
  TGR_CHECK(inputs.target.data != nullptr || inputs.query.rows == 0,
            "rank_of_target: no target given; give one a query");
  on_device(ctx, [&](auto device) { kernels::rank_of_target<T>(device, inputs, ranks); });
}

std::size_t top_k_workspace_bytes(const Context& ctx, std::int64_t queries, std::int64_t width,
                                  std::int64_t num_excluded, std::int64_t k) {
  std::size_t bytes = 0;
  on_device(ctx, [&](auto device) {
    bytes = kernels::top_k_workspace_bytes(device, queries, width, num_excluded, k);
  });
  return bytes;
}

#define TGR_INSTANTIATE(T)                                                                 \
  template void top_k<T>(const Context&, const RetrievalInputs<T>&, const TopKOutput<T>&); \
  template void rank_of_target<T>(const Context&, const RetrievalInputs<T>&, View<std::int64_t, 1>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
