// Rows of a table in the format it is stored in, for operators that read them as another.
//
//   inputs.table = StoredRows(weights.view<bf16, 2>());
//   with_rows<float>(inputs.table, [&]<class Stored>(Rows<const Stored> rows) { ... });
#pragma once

#include <cstdint>
#include <type_traits>

#include "turbogr/core/check.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

struct StoredRows {
  const void* data = nullptr;
  DType dtype = DType::kF32;  // or f64, bf16, f16
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  StoredRows() = default;
  template <class T>
  StoredRows(Rows<T> table)
      : data(table.data),
        dtype(dtype_of<std::remove_const_t<T>>()),
        rows(table.rows),
        cols(table.cols),
        stride(table.stride) {}
  template <class T>
  StoredRows(View<T, 2> table) : StoredRows(Rows<T>(table)) {}

  template <class T>
  Rows<const T> as() const {  // T: what dtype says
    return {static_cast<const T*>(data), rows, cols, stride};
  }
};

// Calls body with the rows in the format they have. Those in f64 are read as f64 alone, the others
// as f32 or bf16.
template <class T, class Body>  // T: what they are read as
void with_rows(const StoredRows& table, Body&& body) {
  const bool fits = (table.dtype == DType::kF64) == std::is_same_v<T, double>;
  TGR_CHECK(fits, "a table in ", name_of(table.dtype), " to be read as ", name_of(dtype_of<T>()),
            "; f64 goes with f64 alone");
  if constexpr (std::is_same_v<T, double>) {
    body(table.as<double>());
  } else if (table.dtype == DType::kBf16) {
    body(table.as<bf16>());
  } else if (table.dtype == DType::kF16) {
    body(table.as<f16>());
  } else {
    body(table.as<float>());
  }
}

}  // namespace turbogr::ops
