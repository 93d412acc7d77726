// Views of the first rows of a buffer that was planned for more.
#pragma once

#include <cstdint>

#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"

namespace turbogr::model {

template <class T>
Rows<T> first_rows(Tensor& buffer, std::int64_t rows) {
  const View<T, 2> whole = buffer.view<T, 2>();
  return {whole.data, rows, whole.shape[1], whole.shape[1]};
}

template <class T>
Rows<const T> first_rows(const Tensor& buffer, std::int64_t rows) {
  const View<const T, 2> whole = buffer.view<T, 2>();
  return {whole.data, rows, whole.shape[1], whole.shape[1]};
}

template <class A>
View<A, 1> first_values(Tensor& buffer, std::int64_t count) {
  return {buffer.view<A, 1>().data, {count}};
}

template <class A>
View<const A, 1> first_values(const Tensor& buffer, std::int64_t count) {
  return {buffer.view<A, 1>().data, {count}};
}

}  // namespace turbogr::model
