// Tables in bf16 or f16: which row of the whole table a row is, and how its updates are rounded. A
// weight of so few bits would swallow small steps if it were rounded to the nearest; it goes up or
// down by chance instead, so that its mean is what f32 would have had. The chance is a function of
// (seed, the row's key, step, column): the same for any number of ranks, threads and devices.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "turbogr/core/dtype.h"
#include "turbogr/core/host_device.h"
#include "turbogr/core/philox.h"

namespace turbogr::ops {

struct RowKeys {
  std::int64_t first = 0, stride = 1;  // the key of row r is first + r * stride,
  std::int64_t factor = 0,
               modulus = 1;  // or (first + r) * factor mod modulus where there is a factor
  std::uint64_t seed = 0;

  TGR_HD std::uint64_t of(std::int64_t row) const {
    if (factor == 0) return static_cast<std::uint64_t>(first + row * stride);
    const auto place = static_cast<WideWord>(static_cast<std::uint64_t>(first + row));
    return static_cast<std::uint64_t>(place * static_cast<std::uint64_t>(factor) %
                                      static_cast<std::uint64_t>(modulus));
  }
};

inline constexpr std::int64_t kRoundedTogether = 8;  // columns whose chances come from one draw

// Of columns [8 block, 8 block + 8) of a row in step `step`: sixteen bits each.
TGR_HD inline std::array<std::uint32_t, 4> rounding_bits(const RowKeys& keys, std::uint64_t key,
                                                         std::uint64_t step, std::int64_t block) {
  constexpr std::uint64_t kUse = 0x6a09e667f3bcc909u;  // apart from other uses of the seed
  return philox(keys.seed ^ kUse, (step << 24) + static_cast<std::uint64_t>(block), key);
}

// The bits of x in either format, up or down by sixteen bits of chance.
TGR_HD inline std::uint32_t bf16_by_chance(float x, std::uint32_t chance) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  if ((word & 0x7f800000u) == 0x7f800000u) return bf16(x).bits;  // not finite
  return (word + chance) >> 16;
}
// What lies past the largest f16 becomes that: a weight never turns infinite by rounding.
TGR_HD inline std::uint32_t f16_by_chance(float x, std::uint32_t chance) {
  constexpr std::uint32_t kLargest = 0x7bffu;
  constexpr std::uint32_t kSmallestNormal = 0x38800000u;  // 2^-14, in f32
  constexpr int kExact = 40;  // a number so many bits below the smallest f16 is 0
  const auto word = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (word >> 16) & 0x8000u;
  const std::uint32_t magnitude = word & 0x7fffffffu;
  std::uint32_t bits = 0;
  if (magnitude >= 0x7f800000u) {
    bits = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  } else if (magnitude >= kSmallestNormal) {
    bits = (magnitude - 0x38000000u + (chance >> 3)) >> 13;
    if (bits > kLargest) bits = kLargest;
  } else {
    // Subnormal: a multiple of 2^-24.
    const int below = 126 - static_cast<int>(magnitude >> 23);  // bits that go, at least 14
    if (below <= kExact) {
      const std::uint64_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
      const std::uint64_t fraction = (std::uint64_t{chance} << below) >> 16;
      bits = static_cast<std::uint32_t>((mantissa + fraction) >> below);
    }
  }
  return sign | bits;
}

// By the bits of column c (of those eight).
template <class Half>  // bf16 or f16
TGR_HD Half rounded_by(float x, const std::array<std::uint32_t, 4>& bits, int c) {
  const std::uint32_t chance = (bits[static_cast<std::size_t>(c / 2)] >> (c % 2 * 16)) & 0xffffu;
  Half rounded;
  rounded.bits = static_cast<std::uint16_t>(std::is_same_v<Half, bf16> ? bf16_by_chance(x, chance)
                                                                       : f16_by_chance(x, chance));
  return rounded;
}

}  // namespace turbogr::ops
