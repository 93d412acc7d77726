#include "turbogr/ops/rows/embedding.h"

#include <limits>

#include "turbogr/ops/checks.h"
#include "turbogr/ops/rows/embedding_kernels.h"
#include "turbogr/ops/rows/index_range.h"
#include "turbogr/ops/rows/radix_sort.h"

namespace turbogr::ops {
namespace {

void check_groups(const Context& ctx, const char* op, const IdGroups& groups, std::int64_t rows) {
  check_offsets(ctx, op, groups.offsets, rows);
  check_vector(op, "unique", groups.unique, groups.offsets.shape[0] - 1);
  check_vector(op, "positions", groups.positions, rows);
}

}  // namespace

std::int64_t dedup_ids(const Context& ctx, View<const std::int64_t, 1> ids,
                       const DedupOutput& output) {
  const std::int64_t count = ids.shape[0];
  TGR_CHECK(count <= std::numeric_limits<std::int32_t>::max(), "dedup_ids: ", count,
            " ids; at most 2^31 - 1 fit one call, cut the batch");
  check_vector("dedup_ids", "ids", ids, count);
  check_vector("dedup_ids", "unique", output.unique, count);
  check_vector("dedup_ids", "offsets", output.offsets, count + 1);
  check_vector("dedup_ids", "positions", output.positions, count);
  check_vector("dedup_ids", "inverse", output.inverse, count);
  std::int64_t num_unique = 0;
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) { num_unique = kernels::dedup_ids(device, ids, output); });
  return num_unique;
}

std::size_t dedup_ids_workspace_bytes(const Context& ctx, std::int64_t num_ids) {
  std::size_t bytes = 0;
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) { bytes = kernels::dedup_ids_workspace_bytes(device, num_ids); });
  return bytes;
}

std::size_t kernels::dedup_ids_workspace_bytes(Cpu, std::int64_t num_ids) {
  return ops::dedup_ids_workspace_bytes(num_ids);
}

std::size_t dedup_ids_workspace_bytes(std::int64_t num_ids) {
  return 2 * workspace_bytes_of<Keyed<std::uint64_t>>(num_ids) +
         workspace_bytes_of<std::uint32_t>(radix_histogram_size(num_ids));
}

template <class T, class Out, class Index>
void gather_rows(const Context& ctx, Rows<const T> table,
                 std::type_identity_t<View<const Index, 1>> ids,
                 std::type_identity_t<Rows<Out>> out) {
  check_rows("gather_rows", "table", table, table.rows, table.cols);
  check_vector("gather_rows", "ids", ids, ids.shape[0]);
  check_rows("gather_rows", "out", out, ids.shape[0], table.cols);
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx,
            [&](auto device) { kernels::gather_rows<T, Out, Index>(device, table, ids, out); });
}

template <class T>
void place_rows(const Context& ctx, Rows<const T> rows, View<const std::int32_t, 1> places,
                Rows<T> out) {
  const char* op = "place_rows";
  check_vector(op, "places", places, rows.rows);
  check_rows(op, "out", out, out.rows, rows.cols);
  if (ctx.device() == Device::kCpu) {
    const std::int64_t bad = first_out_of_range(ctx.pool(), places.data, places.shape[0], out.rows);
    TGR_CHECK(bad < 0, op, ": place ", places(bad < 0 ? 0 : bad), " of row ", bad, " for ",
              out.rows, " rows of out; it must be at least 0 and below that");
  }
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) { kernels::place_rows<T>(device, rows, places, out); });
}

template void place_rows<float>(const Context&, Rows<const float>, View<const std::int32_t, 1>,
                                Rows<float>);
template void place_rows<bf16>(const Context&, Rows<const bf16>, View<const std::int32_t, 1>,
                               Rows<bf16>);

template <class T>
void sum_duplicate_rows(const Context& ctx, Rows<const T> drows, const IdGroups& groups,
                        Rows<Accum<T>> dunique) {
  check_groups(ctx, "sum_duplicate_rows", groups, drows.rows);
  check_rows("sum_duplicate_rows", "dunique", dunique, groups.unique.shape[0], drows.cols);
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) {
    kernels::sum_groups<T>(device, drows, groups, /*scatter=*/false, dunique);
  });
}

template <class T>
void scatter_add_rows(const Context& ctx, Rows<const T> drows, const IdGroups& groups,
                      Rows<Accum<T>> dtable) {
  check_groups(ctx, "scatter_add_rows", groups, drows.rows);
  check_rows("scatter_add_rows", "dtable", dtable, dtable.rows, drows.cols);
  const std::int64_t num_unique = groups.unique.shape[0];
  // Ascending and not negative, so the last one speaks for all.
  TGR_CHECK(ctx.device() != Device::kCpu || num_unique == 0 ||
                groups.unique(num_unique - 1) < dtable.rows,
            "scatter_add_rows: id ", num_unique == 0 ? 0 : groups.unique(num_unique - 1),
            " for a table of ", dtable.rows, " rows; ids must be below the table's size");
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) {
    kernels::sum_groups<T>(device, drows, groups, /*scatter=*/true, dtable);
  });
}

template <class T>
std::size_t sum_groups_workspace_bytes(const Context& ctx, std::int64_t rows, std::int64_t width) {
  std::size_t bytes = 0;
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) {
    bytes = kernels::sum_groups_workspace_bytes<T>(device, rows, width);
  });
  return bytes;
}

#define TGR_INSTANTIATE(T)                                                                        \
  template std::size_t sum_groups_workspace_bytes<T>(const Context&, std::int64_t, std::int64_t); \
  template void sum_duplicate_rows<T>(const Context&, Rows<const T>, const IdGroups&,             \
                                      Rows<Accum<T>>);                                            \
  template void scatter_add_rows<T>(const Context&, Rows<const T>, const IdGroups&, Rows<Accum<T>>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

#define TGR_INSTANTIATE(T, Out)                                                            \
  template void gather_rows<T, Out, std::int64_t>(const Context&, Rows<const T>,           \
                                                  View<const std::int64_t, 1>, Rows<Out>); \
  template void gather_rows<T, Out, std::int32_t>(const Context&, Rows<const T>,           \
                                                  View<const std::int32_t, 1>, Rows<Out>);
TGR_INSTANTIATE(double, double)
TGR_INSTANTIATE(float, float)
TGR_INSTANTIATE(bf16, bf16)
TGR_INSTANTIATE(float, bf16)
TGR_INSTANTIATE(bf16, float)
TGR_INSTANTIATE(f16, float)
TGR_INSTANTIATE(f16, bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
