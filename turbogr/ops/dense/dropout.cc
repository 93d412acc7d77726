#include "turbogr/ops/dense/dropout.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/dropout_kernels.h"

namespace turbogr::ops {

void check_dropout(const char* op, const DropoutOptions& options, std::int64_t rows) {
  TGR_CHECK(options.rate >= 0 && options.rate < 1, op, ": dropout rate is ", options.rate,
            "; it must be at least 0 and below 1");
  TGR_CHECK(options.site < (std::uint64_t{1} << 40), op, ": dropout site is ", options.site,
            "; it must be below 2^40");
  TGR_CHECK(options.row_keys.data == nullptr || options.row_keys.shape[0] == rows, op, ": ",
            options.row_keys.shape[0], " dropout row keys for ", rows,
            " rows; give one a row or none");
}

template <class T>
void dropout(const Context& ctx, Rows<const T> x, const DropoutOptions& options, Rows<T> y) {
  check_rows("dropout", "y", y, x.rows, x.cols);
  check_dropout("dropout", options, x.rows);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::dropout<T>(device, x, options, y); });
}

template <class T>
void dropout_backward(const Context& ctx, Rows<const T> dy, const DropoutOptions& options,
                      Rows<T> dx) {
  check_rows("dropout_backward", "dx", dx, dy.rows, dy.cols);
  check_dropout("dropout_backward", options, dy.rows);
  // The mask is linear: its transpose is itself.
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::dropout<T>(device, dy, options, dx); });
}

#define TGR_INSTANTIATE(T)                                                                 \
  template void dropout<T>(const Context&, Rows<const T>, const DropoutOptions&, Rows<T>); \
  template void dropout_backward<T>(const Context&, Rows<const T>, const DropoutOptions&, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
