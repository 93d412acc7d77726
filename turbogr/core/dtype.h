// Number formats. bf16 and f16 are storage only: arithmetic happens in Accum<T>.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "turbogr/core/host_device.h"

namespace turbogr {

// The upper half of an f32, rounded to nearest even.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  TGR_HD explicit bf16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    // A NaN keeps its sign and stays a NaN; rounding could carry it into infinity.
    bits = nan ? static_cast<std::uint16_t>((word >> 16) | 0x40u)
               : static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  TGR_HD explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

// IEEE binary16, with subnormals, rounded to nearest even.
struct f16 {
  std::uint16_t bits;

  f16() = default;
  explicit f16(float value);
  explicit operator float() const;
};

enum class DType : std::uint8_t { kF64, kF32, kBf16, kF16, kI64, kI32, kU8 };

std::size_t size_of(DType dtype);
std::string_view name_of(DType dtype);
DType dtype_from_name(std::string_view name);  // throws on an unknown name, listing those known

template <class T>
constexpr DType dtype_of() {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, double>) {
    return DType::kF64;
  } else if constexpr (std::is_same_v<U, float>) {
    return DType::kF32;
  } else if constexpr (std::is_same_v<U, bf16>) {
    return DType::kBf16;
  } else if constexpr (std::is_same_v<U, f16>) {
    return DType::kF16;
  } else if constexpr (std::is_same_v<U, std::int64_t>) {
    return DType::kI64;
  } else if constexpr (std::is_same_v<U, std::int32_t>) {
    return DType::kI32;
  } else {
    static_assert(std::is_same_v<U, std::uint8_t>, "no DType for this type");
    return DType::kU8;
  }
}

// What sums, parameter gradients, biases and statistics of a T computation are kept in.
template <class T>
using Accum = std::conditional_t<std::is_same_v<std::remove_const_t<T>, double>, double, float>;

// One spelling for conversions between all formats, through Accum where needed.
template <class To, class From>
TGR_HD To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_arithmetic_v<To> && std::is_arithmetic_v<From>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_arithmetic_v<To>) {
    return static_cast<To>(static_cast<float>(value));
  } else {
    return To(static_cast<float>(value));
  }
}

}  // namespace turbogr
