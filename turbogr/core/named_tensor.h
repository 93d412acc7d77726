// Memory with a name. Model and optimiser code registers its tensors as these; files are written
// from them and read into them, so neither side knows of the other.
//
//   tensors.push_back(named("layers.0.w", layer.w));
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "turbogr/core/device.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"

namespace turbogr {

// Borrowed, dense, row-major. Must outlive its use.
struct NamedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::byte* data = nullptr;
  Device device = Device::kCpu;

  std::uint64_t bytes() const {
    std::uint64_t count = size_of(dtype);
    for (const std::int64_t dimension : shape) count *= static_cast<std::uint64_t>(dimension);
    return count;
  }
};

inline NamedTensor named(std::string name, Tensor& tensor) {
  return {std::move(name), tensor.dtype(), tensor.shape(), tensor.data(), tensor.device()};
}

template <class T, int Rank>
NamedTensor named(std::string name, View<T, Rank> view) {
  return {std::move(name),
          dtype_of<T>(),
          {view.shape, view.shape + Rank},
          reinterpret_cast<std::byte*>(view.data),
          Device::kCpu};
}

}  // namespace turbogr
