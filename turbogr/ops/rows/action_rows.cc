#include "turbogr/ops/rows/action_rows.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/convert_kernels.h"

namespace turbogr::ops {
namespace {

void check_actions(const char* op, std::int64_t actions) {
  TGR_CHECK(actions >= 1 && actions <= 32, op, ": a table of ", actions,
            " rows; a mask has a bit for 1 to 32");
}

}  // namespace

template <class T>
void action_rows(const Context& ctx, View<const Accum<T>, 2> table,
                 View<const std::uint32_t, 1> masks, Rows<T> rows) {
  check_actions("action_rows", table.shape[0]);
  check_vector("action_rows", "masks", masks, rows.rows);
  check_rows("action_rows", "rows", rows, rows.rows, table.shape[1]);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::action_rows<T>(device, table, masks, rows); });
}

template <class T>
void action_rows_backward(const Context& ctx, Rows<const T> drows,
                          View<const std::uint32_t, 1> masks, View<Accum<T>, 2> dtable) {
  check_actions("action_rows_backward", dtable.shape[0]);
  check_vector("action_rows_backward", "masks", masks, drows.rows);
  check_rows("action_rows_backward", "drows", drows, drows.rows, dtable.shape[1]);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx,
            [&](auto device) { kernels::action_rows_backward<T>(device, drows, masks, dtable); });
}

template <class T>
std::size_t action_rows_workspace_bytes(const Context& ctx, std::int64_t tokens,
                                        std::int64_t actions, std::int64_t width) {
  std::size_t bytes = 0;
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) {
    bytes = kernels::action_rows_workspace_bytes<T>(device, tokens, actions, width);
  });
  return bytes;
}

#define TGR_INSTANTIATE(T)                                                                        \
  template void action_rows<T>(const Context&, View<const Accum<T>, 2>,                           \
                               View<const std::uint32_t, 1>, Rows<T>);                            \
  template void action_rows_backward<T>(const Context&, Rows<const T>,                            \
                                        View<const std::uint32_t, 1>, View<Accum<T>, 2>);         \
  template std::size_t action_rows_workspace_bytes<T>(const Context&, std::int64_t, std::int64_t, \
                                                      std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
