// Tables in bf16: which row of the whole table a row is, and how its updates are rounded. A weight
// of eight bits would swallow small steps if it were rounded to the nearest; it goes up or down by
// chance instead, so that its mean is what f32 would have had. The chance is a function of (seed,
// the row's key, step, column): the same for any number of ranks, threads and devices.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

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

// By the bits of column c (of those eight).
TGR_HD inline bf16 rounded_by(float x, const std::array<std::uint32_t, 4>& bits, int c) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  if ((word & 0x7f800000u) == 0x7f800000u) return bf16(x);  // not finite
  const std::uint32_t chance = (bits[static_cast<std::size_t>(c / 2)] >> (c % 2 * 16)) & 0xffffu;
  bf16 rounded;
  rounded.bits = static_cast<std::uint16_t>((word + chance) >> 16);
  return rounded;
}

}  // namespace turbogr::ops
