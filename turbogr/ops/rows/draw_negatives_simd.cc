#include "turbogr/ops/rows/draw_negatives_simd.h"

#include "turbogr/core/philox_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

// uniform_below of the 64 bits (high, low): the whole part of them times bound / 2^64.
inline Words below(Words high, Words low, std::uint32_t bound) {
  Words whole, fraction, carried, rest;
  wide_multiply(high, bound, &whole, &fraction);
  wide_multiply(low, bound, &carried, &rest);
  const Words sum = fraction + carried;
  return whole - (Words)(sum < fraction);  // a true comparison is -1
}

void draw(std::uint64_t seed, std::uint64_t row_key, std::uint64_t first, std::int64_t pairs,
          std::uint32_t bound, std::int64_t* ids) {
  Words lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = static_cast<std::uint32_t>(i);
  for (std::int64_t p = 0; p < pairs; p += kLanes) {
    Words c0 = splat_word(static_cast<std::uint32_t>(row_key));
    Words c1 = splat_word(static_cast<std::uint32_t>(row_key >> 32));
    Words c2 = splat_word(static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(p)) + lane;
    Words c3 = splat_word(static_cast<std::uint32_t>(first >> 32));
    philox_rounds(seed, &c0, &c1, &c2, &c3);
    std::uint32_t even[kLanes], odd[kLanes];
    const Words evens = below(c0, c1, bound), odds = below(c2, c3, bound);
    std::memcpy(even, &evens, sizeof even);
    std::memcpy(odd, &odds, sizeof odd);
    const std::int64_t count = pairs - p < kLanes ? pairs - p : kLanes;
    for (std::int64_t i = 0; i < count; ++i) {
      ids[2 * (p + i)] = even[i];
      ids[2 * (p + i) + 1] = odd[i];
    }
  }
}

constexpr UniformDraws kTable = {draw};

}  // namespace

const UniformDraws& uniform_draws() { return kTable; }

}  // namespace turbogr::TGR_SIMD
