// Random inputs and error measures of the benchmarks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "turbogr/core/dtype.h"
#include "turbogr/core/philox.h"
#include "turbogr/core/tensor.h"

namespace turbogr::bench {

inline double element(const Tensor& tensor, std::int64_t i) {
  if (tensor.dtype() == DType::kF64) return reinterpret_cast<const double*>(tensor.data())[i];
  return tensor.dtype() == DType::kBf16
             ? static_cast<float>(reinterpret_cast<const bf16*>(tensor.data())[i])
             : reinterpret_cast<const float*>(tensor.data())[i];
}

// Normal numbers in f32 or bf16.
inline Tensor random_tensor(DType dtype, std::vector<std::int64_t> shape, std::uint64_t seed,
                            double scale = 1.0) {
  Tensor tensor(dtype, std::move(shape));
  PhiloxStream random(seed);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const auto value = static_cast<float>(scale * random.normal());
    if (dtype == DType::kBf16) {
      reinterpret_cast<bf16*>(tensor.data())[i] = bf16(value);
    } else {
      reinterpret_cast<float*>(tensor.data())[i] = value;
    }
  }
  return tensor;
}

// max |a - b| / max |b| over the elements both have; infinite when anything is not finite.
inline double relative_error(const Tensor& a, const Tensor& b) {
  double difference = 0;
  double largest = 0;
  for (std::int64_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double gap = std::abs(element(a, i) - element(b, i));
    if (!std::isfinite(gap)) return INFINITY;
    difference = std::max(difference, gap);
    largest = std::max(largest, std::abs(element(b, i)));
  }
  return largest == 0 ? difference : difference / largest;
}

}  // namespace turbogr::bench
