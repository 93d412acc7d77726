// A matrix inside a wider buffer, as slices of a projection output are. Outputs start as NaN, so an
// element left unwritten is caught; what lies around the matrix must stay NaN.
//
//   Block<float> y(rows, cols);
//   linear<float>(ctx, ..., y.rows());
//   EXPECT_TRUE(as_close_as_plain(y.values(), plain, reference));
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/support/data.h"
#include "tests/support/tolerance.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"

namespace turbogr::test {

template <class T>
void poison(Tensor& tensor) {
  T* data = reinterpret_cast<T*>(tensor.data());
  const auto nan = convert<T>(std::numeric_limits<Accum<T>>::quiet_NaN());
  for (std::int64_t i = 0; i < tensor.size(); ++i) data[i] = nan;
}

template <class T>
class Block {
 public:
  static constexpr std::int64_t kLeft = 3;
  static constexpr std::int64_t kRight = 2;

  Block(std::int64_t rows, std::int64_t cols)
      : rows_(rows), cols_(cols), storage_(dtype_of<T>(), {rows, kLeft + cols + kRight}) {
    poison<T>(storage_);
  }
  explicit Block(const Tensor& values) : Block(values.shape()[0], values.shape()[1]) {
    const T* source = reinterpret_cast<const T*>(values.data());
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = 0; c < cols_; ++c) rows()(r, c) = source[r * cols_ + c];
    }
  }

  Rows<T> rows() { return Rows<T>(storage_.view<T, 2>()).columns(kLeft, cols_); }
  Rows<const T> rows() const { return Rows<const T>(storage_.view<T, 2>()).columns(kLeft, cols_); }

  // A dense copy; fails the test where the surroundings were written.
  Tensor values() const {
    Tensor out(dtype_of<T>(), {rows_, cols_});
    T* target = reinterpret_cast<T*>(out.data());
    const std::int64_t stride = kLeft + cols_ + kRight;
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = 0; c < stride; ++c) {
        const bool inside = c >= kLeft && c < kLeft + cols_;
        if (inside) {
          target[r * cols_ + c - kLeft] = rows()(r, c - kLeft);
        } else if (!std::isnan(element(storage_, r * stride + c))) {
          ADD_FAILURE() << "row " << r << " was written beside its columns, at " << c - kLeft;
        }
      }
    }
    return out;
  }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  Tensor storage_;
};

// as_close_as_plain; in double, where the plain implementation is the reference, another order of
// its sums is allowed.
inline ::testing::AssertionResult matches(const Tensor& fast, const Tensor& plain,
                                          const Tensor& reference) {
  if (fast.dtype() != DType::kF64) return as_close_as_plain(fast, plain, reference);
  const double error = max_error(fast, reference);
  const double bound = 0x1p-44 * max_magnitude(reference);
  if (error <= bound) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "error " << error << " above " << bound;
}

// The bytes of two tensors of one format and shape.
inline ::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) {
    return ::testing::AssertionFailure() << "different formats or shapes";
  }
  for (std::size_t i = 0; i < a.bytes(); ++i) {
    if (a.data()[i] != b.data()[i]) {
      return ::testing::AssertionFailure() << "bytes differ from byte " << i << " on";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace turbogr::test
