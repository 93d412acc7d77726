#include "turbogr/ops/rows/move_rows.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/rows/index_range.h"
#include "turbogr/ops/rows/move_rows_kernels.h"

namespace turbogr::ops {
namespace {

template <class Index>
void check_row_places(const Context& ctx, const char* name, View<const Index, 1> places,
                      std::int64_t rows) {
  const std::int64_t bad = first_out_of_range(ctx.pool(), places.data, places.shape[0], rows);
  TGR_CHECK(bad < 0, "move_rows: ", name, " ", places(bad < 0 ? 0 : bad), " at position ", bad,
            " for ", rows, " rows; it must be at least 0 and below that");
}

}  // namespace

template <class From, class To, class Index>
void move_rows(const Context& ctx, std::type_identity_t<Rows<const From>> from,
               std::type_identity_t<View<const Index, 1>> from_places,
               std::type_identity_t<Rows<To>> to, View<const std::int32_t, 1> to_places) {
  TGR_CHECK(from.cols == to.cols, "move_rows: rows of ", from.cols, " columns to rows of ",
            to.cols);
  check_vector("move_rows", "to_places", to_places, from_places.shape[0]);
  if (from_places.shape[0] == 0 || to.cols == 0) return;
  TGR_CHECK(from.data != nullptr && to.data != nullptr && from_places.data != nullptr,
            "move_rows: no memory; give it buffers");
  if (ctx.device() == Device::kCpu) {
    check_row_places(ctx, "from_place", from_places, from.rows);
    check_row_places(ctx, "to_place", to_places, to.rows);
  }
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) {
    kernels::move_rows<From, To, Index>(device, from, from_places, to, to_places);
  });
}

TGR_INSTANTIATE_MOVE_ROWS(const Context&)

}  // namespace turbogr::ops
