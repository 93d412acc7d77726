#include "turbogr/ops/rows/half_rows.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/rows/half_rows_kernels.h"
#include "turbogr/ops/rows/index_range.h"

namespace turbogr::ops {
namespace {

void check(const Context& ctx, const char* op, std::int64_t rows, std::int64_t width,
           View<const std::int64_t, 1> ids, const HalfRowsOut& out, std::int64_t out_rows) {
  check_rows(op, "out", out.values, out_rows, width);
  check_vector(op, "scale", out.scale, out_rows);
  if (ctx.device() != Device::kCpu) return;
  const std::int64_t bad = first_out_of_range(ctx.pool(), ids.data, ids.shape[0], rows);
  TGR_CHECK(bad < 0, op, ": id ", ids(bad < 0 ? 0 : bad), " at position ", bad, " for a table of ",
            rows, " rows; it must be at least 0 and below that");
}

}  // namespace

void gather_half_rows(const Context& ctx, Rows<const float> table, View<const std::int64_t, 1> ids,
                      const HalfRowsOut& out) {
  const char* op = "gather_half_rows";
  check(ctx, op, table.rows, table.cols, ids, out, ids.shape[0]);
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) { kernels::to_half_rows(device, table, ids, false, out); });
}

void gather_half_rows(const Context& ctx, const HalfRows& table, View<const std::int64_t, 1> ids,
                      const HalfRowsOut& out) {
  const char* op = "gather_half_rows";
  check_vector(op, "table's scale", table.scale, table.rows());
  check(ctx, op, table.rows(), table.values.cols, ids, out, ids.shape[0]);
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) { kernels::copy_half_rows(device, table, ids, out); });
}

void refresh_half_rows(const Context& ctx, Rows<const float> table, View<const std::int64_t, 1> ids,
                       const HalfRowsOut& out) {
  const char* op = "refresh_half_rows";
  check(ctx, op, table.rows, table.cols, ids, out, table.rows);
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) { kernels::to_half_rows(device, table, ids, true, out); });
}

}  // namespace turbogr::ops
