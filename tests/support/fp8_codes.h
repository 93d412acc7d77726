// What an fp8 code means, from the formats' definitions alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "turbogr/ops/dense/fp8.h"

namespace turbogr::test {

inline double fp8_value(ops::Fp8Format format, std::uint8_t code) {
  const bool e4m3 = format == ops::Fp8Format::kE4m3;
  const int fraction_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const int exponent = (code & 0x7f) >> fraction_bits;
  const int fraction = code & ((1 << fraction_bits) - 1);
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (e4m3 && (code & 0x7f) == 0x7f) return kNan;
  if (!e4m3 && exponent == 31) return fraction == 0 ? sign * INFINITY : kNan;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

}  // namespace turbogr::test
