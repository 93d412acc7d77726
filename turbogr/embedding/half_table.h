// A copy of a whole item table in f16, each row scaled by its own largest magnitude: half the bytes
// to read and to send when negatives are gathered. It is refreshed where an update changed rows, so
// that its rows are always those the table's would round to.
//
//   HalfTable copy(table.rows(), table.width());
//   copy.assign(ctx, table.weights());
//   table.update(ctx, ids, gradient, options);
//   copy.refresh(ctx, table.weights(), ids);
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/rows/half_rows.h"

namespace turbogr::embedding {

class HalfTable {
 public:
  HalfTable() = default;
  HalfTable(std::int64_t rows, std::int64_t width, Device device = Device::kCpu)
      : values_(DType::kF16, {rows, width}, device), scale_(DType::kF32, {rows}, device) {}

  bool empty() const { return values_.size() == 0; }
  // All rows: at the start, and after loading weights.
  void assign(const Context& ctx, Rows<const float> table);
  void refresh(const Context& ctx, Rows<const float> table, View<const std::int64_t, 1> ids) {
    ops::refresh_half_rows(ctx, table, ids, out());
  }
  ops::HalfRows rows() const { return {values_.view<f16, 2>(), scale_.view<float, 1>()}; }
  std::size_t bytes() const { return values_.bytes() + scale_.bytes(); }

 private:
  ops::HalfRowsOut out() { return {values_.view<f16, 2>(), scale_.view<float, 1>()}; }

  Tensor values_;
  Tensor scale_;
};

}  // namespace turbogr::embedding
