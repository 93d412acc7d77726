// Seeded inputs for tests: tensors, jagged batches, timestamps.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/core/dtype.h"
#include "turbogr/core/philox.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"

namespace turbogr::test {

// A tensor of normal numbers, rounded to the format asked for.
template <class T>
Tensor random_tensor(std::vector<std::int64_t> shape, std::uint64_t seed, double scale = 1.0) {
  Tensor tensor(dtype_of<T>(), std::move(shape));
  PhiloxStream random(seed);
  T* data = reinterpret_cast<T*>(tensor.data());
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    data[i] = convert<T>(static_cast<Accum<T>>(scale * random.normal()));
  }
  return tensor;
}

// The same numbers in another format: how a double reference gets exactly the kernel's inputs.
template <class To, class From>
Tensor converted(const Tensor& from) {
  Tensor to(dtype_of<To>(), from.shape());
  const From* source = reinterpret_cast<const From*>(from.data());
  To* target = reinterpret_cast<To*>(to.data());
  for (std::int64_t i = 0; i < from.size(); ++i) target[i] = convert<To>(source[i]);
  return to;
}

inline std::vector<std::int64_t> offsets_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> offsets = {0};
  for (const std::int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

inline Offsets view_of(const std::vector<std::int64_t>& offsets) {
  return {offsets.data(), {static_cast<std::int64_t>(offsets.size())}};
}

template <class T>
View<T, 1> view_of(std::vector<T>& values) {
  return {values.data(), {static_cast<std::int64_t>(values.size())}};
}

}  // namespace turbogr::test
