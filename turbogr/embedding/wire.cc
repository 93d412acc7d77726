#include "turbogr/embedding/wire.h"

#include <cstring>

#include "turbogr/core/check.h"

namespace turbogr::embedding {
namespace {

// Messages are bytes without a type: elements are copied in and out.
template <class From, class To>
void convert_row(const void* from, std::int64_t width, void* to) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to, from, static_cast<std::size_t>(width) * sizeof(To));
  } else {
    const auto* source = static_cast<const std::byte*>(from);
    auto* target = static_cast<std::byte*>(to);
    for (std::int64_t c = 0; c < width; ++c) {
      From value;
      std::memcpy(&value, source + static_cast<std::size_t>(c) * sizeof(From), sizeof(From));
      const To converted = convert<To>(value);
      std::memcpy(target + static_cast<std::size_t>(c) * sizeof(To), &converted, sizeof(To));
    }
  }
}

}  // namespace

template <class T>
void to_wire(DType wire, const T* row, std::int64_t width, std::byte* to) {
  if (wire == DType::kF32) {
    convert_row<T, float>(row, width, to);
  } else if (wire == DType::kBf16) {
    convert_row<T, bf16>(row, width, to);
  } else {
    TGR_ASSERT(wire == DType::kF16);
    convert_row<T, f16>(row, width, to);
  }
}

template <class T>
void from_wire(DType wire, const std::byte* from, std::int64_t width, T* row) {
  if (wire == DType::kF32) {
    convert_row<float, T>(from, width, row);
  } else if (wire == DType::kBf16) {
    convert_row<bf16, T>(from, width, row);
  } else {
    TGR_ASSERT(wire == DType::kF16);
    convert_row<f16, T>(from, width, row);
  }
}

template void to_wire<float>(DType, const float*, std::int64_t, std::byte*);
template void to_wire<bf16>(DType, const bf16*, std::int64_t, std::byte*);
template void to_wire<f16>(DType, const f16*, std::int64_t, std::byte*);
template void from_wire<float>(DType, const std::byte*, std::int64_t, float*);
template void from_wire<bf16>(DType, const std::byte*, std::int64_t, bf16*);
template void from_wire<f16>(DType, const std::byte*, std::int64_t, f16*);

}  // namespace turbogr::embedding
