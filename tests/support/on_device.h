// One test case for both devices: inputs are placed in the context's memory, results fetched back.
//
//   for (const Device device : test::devices()) {
//     Context ctx({.device = device});
//     const Placed<float> x(ctx, values, kAligned);
//     Placed<float> y(ctx, rows, cols, kAligned);
//     silu<float>(ctx, x.rows(), y.rows());
//     EXPECT_TRUE(matches(y.fetch(ctx), plain, reference));
//   }
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/block.h"
#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/tensor.h"

namespace turbogr::test {

inline bool has_gpu() { return device_memory().total > 0; }

inline std::vector<Device> devices() {
  return has_gpu() ? std::vector{Device::kCpu, Device::kCuda} : std::vector{Device::kCpu};
}

#define TGR_SKIP_WITHOUT_GPU() \
  if (!::turbogr::test::has_gpu()) GTEST_SKIP() << "no GPU here"

inline Tensor place(const Context& ctx, const Tensor& host) {
  Tensor placed(host.dtype(), host.shape(), ctx.device());
  copy_tensor(ctx, placed, host);
  return placed;
}

template <class T>
Tensor tensor_of(const std::vector<T>& values) {
  Tensor tensor(dtype_of<T>(), {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), reinterpret_cast<T*>(tensor.data()));
  return tensor;
}

template <class T>
std::vector<T> vector_of(const Context& ctx, const Tensor& tensor) {
  const Tensor host = to_host(ctx, tensor);
  const T* data = reinterpret_cast<const T*>(host.data());
  return std::vector<T>(data, data + host.size());
}

// Columns around a matrix: vector kernels want rows at multiples of 16 bytes.
struct Margins {
  std::int64_t left, right;
};
inline constexpr Margins kAligned = {8, 8};
inline constexpr Margins kCrooked = {3, 2};

// A matrix inside a wider buffer of the context's device; all else is NaN and must stay so.
template <class T>
class Placed {
 public:
  Placed(const Context& ctx, std::int64_t rows, std::int64_t cols, Margins margins)
      : rows_(rows), cols_(cols), margins_(margins) {
    Tensor host = poisoned_host();
    storage_ = place(ctx, host);
  }
  Placed(const Context& ctx, const Tensor& values, Margins margins)
      : rows_(values.shape()[0]), cols_(values.shape()[1]), margins_(margins) {
    Tensor host = poisoned_host();
    const Rows<T> inside = inside_of(host);
    const T* source = reinterpret_cast<const T*>(values.data());
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = 0; c < cols_; ++c) inside(r, c) = source[r * cols_ + c];
    }
    storage_ = place(ctx, host);
  }

  Rows<T> rows() { return inside_of(storage_); }
  Rows<const T> rows() const { return inside_of(const_cast<Tensor&>(storage_)); }

  // A dense copy on the host; fails the test where the surroundings were written.
  Tensor fetch(const Context& ctx) const {
    Tensor host = to_host(ctx, storage_);
    Tensor out(dtype_of<T>(), {rows_, cols_});
    T* target = reinterpret_cast<T*>(out.data());
    const Rows<T> inside = inside_of(host);
    const std::int64_t stride = inside.stride;
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = 0; c < cols_; ++c) target[r * cols_ + c] = inside(r, c);
      for (std::int64_t c = 0; c < stride; ++c) {
        if (c >= margins_.left && c < margins_.left + cols_) continue;
        if (!std::isnan(element(host, r * stride + c))) {
          ADD_FAILURE() << "row " << r << " was written beside its columns, at "
                        << c - margins_.left;
        }
      }
    }
    return out;
  }

 private:
  Tensor poisoned_host() const {
    Tensor host(dtype_of<T>(), {rows_, margins_.left + cols_ + margins_.right});
    poison<T>(host);
    return host;
  }
  Rows<T> inside_of(Tensor& buffer) const {
    return Rows<T>(buffer.view<T, 2>()).columns(margins_.left, cols_);
  }

  std::int64_t rows_, cols_;
  Margins margins_;
  Tensor storage_;
};

}  // namespace turbogr::test
