// What a PackedWeight holds. For linear.cc and linear_cpu.cc.
#pragma once

#include <memory>

#include "turbogr/core/tensor.h"
#include "turbogr/ops/dense/linear.h"
#include "turbogr/ops/dense/linear_products.h"

namespace turbogr::ops {

template <class T>
struct PackedWeight<T>::State {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  SimdLevel simd = SimdLevel::kPortable;
  Device device = Device::kCpu;
  bool packed = false;
  bool small = false;  // linear_small.h makes its products, and none of those below are there
  Tensor forward;      // of x W; in f64 and on a GPU W itself, and nothing else is used
  Tensor transposed;   // of dz W^T
  DType compute = DType::kF32;
  std::unique_ptr<PackedProduct> forward_product;
  std::unique_ptr<PackedProduct> transposed_product;
  std::unique_ptr<GradientProduct> gradient_product;
};

}  // namespace turbogr::ops
