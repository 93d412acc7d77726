#include "turbogr/ops/rows/random_rows.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/rows/random_rows_kernels.h"

namespace turbogr::ops {

template <class T>
void truncated_normal_rows(const Context& ctx, View<T, 2> table, std::int64_t first_row,
                           std::uint64_t seed, double scale) {
  const char* op = "truncated_normal_rows";
  check_rows(op, "table", Rows<T>(table), table.shape[0], table.shape[1]);
  TGR_CHECK(first_row >= 0 && first_row <= table.shape[0], op, ": first row ", first_row,
            " of a table of ", table.shape[0], " rows");
  on_device(ctx, [&](auto device) {
    kernels::truncated_normal_rows<T>(device, table, first_row, seed, scale);
  });
}

template void truncated_normal_rows<float>(const Context&, View<float, 2>, std::int64_t,
                                           std::uint64_t, double);
template void truncated_normal_rows<bf16>(const Context&, View<bf16, 2>, std::int64_t,
                                          std::uint64_t, double);
template void truncated_normal_rows<f16>(const Context&, View<f16, 2>, std::int64_t, std::uint64_t,
                                         double);

}  // namespace turbogr::ops
