// Results as NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "turbogr/core/tensor.h"

namespace turbogr::python {

// An array for Python that owns its memory.
template <class T>
nanobind::object array_of(std::vector<T> values, std::vector<std::size_t> shape) {
  auto* held = new std::vector<T>(std::move(values));
  const nanobind::capsule owner(held,
                                [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nanobind::cast(
      nanobind::ndarray<nanobind::numpy, T>(held->data(), shape.size(), shape.data(), owner));
}

// A copy of a matrix of f32.
inline nanobind::object array_of(const Tensor& tensor) {
  const auto* values = reinterpret_cast<const float*>(tensor.data());
  return array_of(
      std::vector<float>(values, values + tensor.size()),
      {static_cast<std::size_t>(tensor.shape()[0]), static_cast<std::size_t>(tensor.shape()[1])});
}

}  // namespace turbogr::python
