#include "turbogr/core/dtype.h"

#include <array>

#include "turbogr/core/check.h"

namespace turbogr {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  std::size_t size;
};

constexpr std::array<Entry, 7> kEntries = {{{DType::kF64, "f64", 8},
                                            {DType::kF32, "f32", 4},
                                            {DType::kBf16, "bf16", 2},
                                            {DType::kF16, "f16", 2},
                                            {DType::kI64, "i64", 8},
                                            {DType::kI32, "i32", 4},
                                            {DType::kU8, "u8", 1}}};

const Entry& entry_of(DType dtype) { return kEntries.at(static_cast<std::size_t>(dtype)); }

}  // namespace

std::size_t size_of(DType dtype) { return entry_of(dtype).size; }

std::string_view name_of(DType dtype) { return entry_of(dtype).name; }

DType dtype_from_name(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  detail::throw_error("unknown number format '", name,
                      "'; use f64, f32, bf16, f16, i64, i32 or u8");
}

f16::f16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((word >> 16) & 0x8000u);
  const std::uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN
    bits = sign | 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // rounds past 65504, or infinite
    bits = sign | 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 lets the f32 adder round it
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  } else {
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    bits = static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
  }
}

f16::operator float() const {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity and NaN
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  }
  if (magnitude < 0x400u) {  // subnormal: a small integer times 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

}  // namespace turbogr
