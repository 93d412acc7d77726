#include "turbogr/ops/rows/random_rows.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/rows/random_rows_kernels.h"

namespace turbogr::ops {

template <class T>
void random_rows(const Context& ctx, View<T, 2> table, std::int64_t first_row, std::uint64_t seed,
                 RowStart start) {
  const char* op = "random_rows";
  check_rows(op, "table", Rows<T>(table), table.shape[0], table.shape[1]);
  TGR_CHECK(first_row >= 0 && first_row <= table.shape[0], op, ": first row ", first_row,
            " of a table of ", table.shape[0], " rows");
  on_device(ctx,
            [&](auto device) { kernels::random_rows<T>(device, table, first_row, seed, start); });
}

template void random_rows<float>(const Context&, View<float, 2>, std::int64_t, std::uint64_t,
                                 RowStart);
template void random_rows<bf16>(const Context&, View<bf16, 2>, std::int64_t, std::uint64_t,
                                RowStart);
template void random_rows<f16>(const Context&, View<f16, 2>, std::int64_t, std::uint64_t, RowStart);

}  // namespace turbogr::ops
