// Borrowed memory. View<T, Rank> is a dense row-major block with static type and rank; Rows<T> is a
// matrix whose rows may be apart (a slice of columns); Jagged<T> is B sequences end to end. All by
// value.
#pragma once

#include <cstdint>
#include <type_traits>

#include "turbogr/core/host_device.h"

namespace turbogr {

template <class T, int Rank>
struct View {
  T* data = nullptr;
  std::int64_t shape[Rank] = {};

  template <class... Index>
  TGR_HD T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == Rank);
    std::int64_t flat = 0;
    int axis = 0;
    ((flat = flat * shape[axis++] + static_cast<std::int64_t>(index)), ...);
    return data[flat];
  }

  TGR_HD std::int64_t size() const {
    std::int64_t count = 1;
    for (int axis = 0; axis < Rank; ++axis) count *= shape[axis];
    return count;
  }
  TGR_HD bool empty() const { return data == nullptr || size() == 0; }

  template <class U = T, class = std::enable_if_t<!std::is_const_v<U>>>
  operator View<const U, Rank>() const {
    View<const U, Rank> view;
    view.data = data;
    for (int axis = 0; axis < Rank; ++axis) view.shape[axis] = shape[axis];
    return view;
  }
};

// A matrix whose rows are `stride` elements apart: q, k, v and u are slices of one projection
// output.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  Rows() = default;
  Rows(T* data_in, std::int64_t rows_in, std::int64_t cols_in, std::int64_t stride_in)
      : data(data_in), rows(rows_in), cols(cols_in), stride(stride_in) {}
  // A dense matrix is a case of Rows; a writable one may be read.
  template <class U, class = std::enable_if_t<std::is_convertible_v<U*, T*>>>
  Rows(View<U, 2> view)
      : data(view.data), rows(view.shape[0]), cols(view.shape[1]), stride(view.shape[1]) {}

  TGR_HD T& operator()(std::int64_t row, std::int64_t col) const {
    return data[row * stride + col];
  }
  TGR_HD T* row(std::int64_t index) const { return data + index * stride; }
  Rows columns(std::int64_t begin, std::int64_t count) const {
    return {data + begin, rows, count, stride};
  }

  template <class U = T, class = std::enable_if_t<!std::is_const_v<U>>>
  operator Rows<const U>() const {
    return {data, rows, cols, stride};
  }
};

using Offsets = View<const std::int64_t, 1>;  // [B + 1], from 0 to N, never down

// B sequences end to end: sequence b is rows offsets(b) up to offsets(b + 1).
template <class T>
struct Jagged {
  Rows<T> values;  // [N, D]
  Offsets offsets;

  std::int64_t batch() const { return offsets.shape[0] - 1; }
  std::int64_t tokens() const { return values.rows; }
  std::int64_t width() const { return values.cols; }

  template <class U = T, class = std::enable_if_t<!std::is_const_v<U>>>
  operator Jagged<const U>() const {
    return {values, offsets};
  }
};

}  // namespace turbogr
