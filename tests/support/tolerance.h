// Tolerance by measurement: a kernel may be at most about twice as far from the double reference as
// a plain implementation in the same number format is. No guessed 1e-2.
//
//   EXPECT_TRUE(as_close_as_plain(fast, plain, reference));
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "turbogr/core/dtype.h"
#include "turbogr/core/tensor.h"

namespace turbogr::test {

// Element i as a double, whatever the format.
inline double element(const Tensor& tensor, std::int64_t i) {
  switch (tensor.dtype()) {
    case DType::kF64:
      return reinterpret_cast<const double*>(tensor.data())[i];
    case DType::kF32:
      return reinterpret_cast<const float*>(tensor.data())[i];
    case DType::kBf16:
      return static_cast<float>(reinterpret_cast<const bf16*>(tensor.data())[i]);
    case DType::kF16:
      return static_cast<float>(reinterpret_cast<const f16*>(tensor.data())[i]);
    default:
      ADD_FAILURE() << "element() is for floating-point tensors";
      return 0;
  }
}

// Largest absolute difference and the reference's largest magnitude; a NaN anywhere makes it
// infinite.
inline double max_error(const Tensor& value, const Tensor& reference) {
  EXPECT_EQ(value.shape(), reference.shape());
  double worst = 0;
  for (std::int64_t i = 0; i < reference.size(); ++i) {
    const double error = std::abs(element(value, i) - element(reference, i));
    if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
  }
  return worst;
}

inline double max_magnitude(const Tensor& tensor) {
  double largest = 0;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    largest = std::max(largest, std::abs(element(tensor, i)));
  }
  return largest;
}

// err(fast, double) <= 2 * err(plain, double) + floor, where the floor is a few units in the last
// place of the largest value in the format at hand.
inline ::testing::AssertionResult as_close_as_plain(const Tensor& fast, const Tensor& plain,
                                                    const Tensor& reference) {
  const double fast_error = max_error(fast, reference);
  const double plain_error = max_error(plain, reference);
  const double unit = fast.dtype() == DType::kBf16  ? 0x1p-8
                      : fast.dtype() == DType::kF16 ? 0x1p-11
                      : fast.dtype() == DType::kF32 ? 0x1p-23
                                                    : 0x1p-52;
  const double floor = 4 * unit * max_magnitude(reference);
  if (fast_error <= 2 * plain_error + floor) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "error " << fast_error << " against a plain error of "
                                       << plain_error << " and a floor of " << floor;
}

}  // namespace turbogr::test
