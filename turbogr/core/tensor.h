// Owned memory of one device: 64-byte aligned, number format known at run time. Lives at the edges
// (parameters, saved activations, files); operators see views of it.
//
//   Tensor w(DType::kF32, {width, 4 * width});
//   linear(ctx, x, w.view<const float, 2>(), ...);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/core/device.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"

namespace turbogr {

namespace detail {

struct FreeBytes {
  Device device = Device::kCpu;
  void operator()(std::byte* data) const noexcept;
};

}  // namespace detail

class Tensor {
 public:
  Tensor() = default;
  // Zero-filled. Throws when a dimension is negative or memory cannot be had.
  Tensor(DType dtype, std::vector<std::int64_t> shape, Device device = Device::kCpu);

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return static_cast<std::size_t>(size_) * size_of(dtype_); }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }

  template <class T, int Rank>
  View<T, Rank> view() {
    return view_as<T, Rank>(data_.get());
  }
  template <class T, int Rank>
  View<const T, Rank> view() const {
    return view_as<const T, Rank>(data_.get());
  }

 private:
  template <class T, int Rank, class Pointer>
  View<T, Rank> view_as(Pointer data) const {
    check_view(dtype_of<T>(), Rank);
    View<T, Rank> view;
    view.data = reinterpret_cast<T*>(data);
    for (int axis = 0; axis < Rank; ++axis)
      view.shape[axis] = shape_[static_cast<std::size_t>(axis)];
    return view;
  }
  void check_view(DType wanted, int rank) const;

  DType dtype_ = DType::kF32;
  Device device_ = Device::kCpu;
  std::vector<std::int64_t> shape_;
  std::int64_t size_ = 0;
  std::unique_ptr<std::byte, detail::FreeBytes> data_;
};

std::string shape_text(const std::vector<std::int64_t>& shape);  // "[3, 4]"

}  // namespace turbogr
