#include "turbogr/ops/dense/dropout_kernels.h"
#include "turbogr/ops/dense/dropout_mask.h"
#include "turbogr/ops/dense/dropout_simd.h"

namespace turbogr::ops::kernels {

// The specification; f64 runs it as it is.
template <class T>
void dropout(Cpu cpu, Rows<const T> x, const DropoutOptions& options, Rows<T> y) {
  parallel_ranges(cpu.pool, x.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const DropoutRow row = dropout_row(options, r);
      for (std::int64_t c = 0; c < x.cols; ++c) y(r, c) = x(r, c) * row.factor(c);
    }
  });
}

namespace {

template <class T, class RowFunction>
void dropout_rows(Cpu cpu, Rows<const T> x, const DropoutOptions& options, Rows<T> y,
                  RowFunction row_function) {
  parallel_ranges(cpu.pool, x.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const DropoutRow row = dropout_row(options, r);
      const DropoutRowArgs args = {
          row.seed, row.row_key, row.site, row.threshold, static_cast<float>(row.scale), x.cols};
      row_function(args, x.row(r), y.row(r));
    }
  });
}

}  // namespace

template <>
void dropout<float>(Cpu cpu, Rows<const float> x, const DropoutOptions& options, Rows<float> y) {
  dropout_rows<float>(cpu, x, options, y, dropout_table(cpu.simd).row_f32);
}

template <>
void dropout<bf16>(Cpu cpu, Rows<const bf16> x, const DropoutOptions& options, Rows<bf16> y) {
  dropout_rows<bf16>(cpu, x, options, y, dropout_table(cpu.simd).row_bf16);
}

template void dropout<double>(Cpu, Rows<const double>, const DropoutOptions&, Rows<double>);

}  // namespace turbogr::ops::kernels
