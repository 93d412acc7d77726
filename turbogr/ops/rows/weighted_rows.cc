#include "turbogr/ops/rows/weighted_rows.h"

#include "turbogr/core/dtype.h"
#include "turbogr/ops/checks.h"
#include "turbogr/ops/rows/index_range.h"
#include "turbogr/ops/rows/weighted_rows_kernels.h"

namespace turbogr::ops {

template <class T, class Out>
void sum_weighted_rows(const Context& ctx, Rows<const T> rows, const RowPicks& picks,
                       Rows<Out> out) {
  const char* op = "sum_weighted_rows";
  const std::int64_t count = picks.index.shape[0];
  check_offsets(ctx, op, picks.offsets, count);
  check_vector(op, "weights", picks.weights, count);
  check_rows(op, "rows", rows, rows.rows, rows.cols);
  check_rows(op, "out", out, picks.sums(), rows.cols);
  if (ctx.device() == Device::kCpu) {
    const std::int64_t bad = first_out_of_range(ctx.pool(), picks.index.data, count, rows.rows);
    TGR_CHECK(bad < 0, op, ": pick ", bad, " is row ", picks.index(bad < 0 ? 0 : bad), " of ",
              rows.rows, "; it must be at least 0 and below that");
  }
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx,
            [&](auto device) { kernels::sum_weighted_rows<T, Out>(device, rows, picks, out); });
}

std::size_t sum_weighted_rows_workspace_bytes(const Context& ctx, std::int64_t picks,
                                              std::int64_t width) {
  if constexpr (kWithCuda) {
    if (ctx.device() == Device::kCuda) {
      return kernels::sum_weighted_rows_workspace_bytes(Cuda{ctx.stream(), ctx.workspace()}, picks,
                                                        width);
    }
  }
  return 0;
}

template void sum_weighted_rows<float, float>(const Context&, Rows<const float>, const RowPicks&,
                                              Rows<float>);
template void sum_weighted_rows<bf16, bf16>(const Context&, Rows<const bf16>, const RowPicks&,
                                            Rows<bf16>);
template void sum_weighted_rows<bf16, float>(const Context&, Rows<const bf16>, const RowPicks&,
                                             Rows<float>);

}  // namespace turbogr::ops
