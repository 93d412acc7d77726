// The mask of dropout_mask.h, drawn kLanes blocks at a time. For x_simd.cc files.
#pragma once

#include "turbogr/core/simd.h"

namespace turbogr::TGR_SIMD {
namespace {

typedef std::uint64_t LongWords __attribute__((vector_size(kLanes * 8)));

// Factors (0 or scale) of the 8 * kLanes columns from `first_column`, a multiple of that, of one
// row.
inline void dropout_factors(std::uint64_t seed, std::uint64_t row_key, std::uint64_t site,
                            std::int64_t first_column, std::uint32_t threshold, float scale,
                            float* out) {
  Words lane_index;
  for (int lane = 0; lane < kLanes; ++lane) lane_index[lane] = static_cast<std::uint32_t>(lane);
  const std::uint64_t high = (site << 24) + static_cast<std::uint64_t>(first_column / 8);
  Words c0 = splat_word(static_cast<std::uint32_t>(row_key));
  Words c1 = splat_word(static_cast<std::uint32_t>(row_key >> 32));
  // Blocks stay below 2^24, so adding the lane never carries into the site's upper word.
  Words c2 = splat_word(static_cast<std::uint32_t>(high)) + lane_index;
  Words c3 = splat_word(static_cast<std::uint32_t>(high >> 32));
  auto k0 = static_cast<std::uint32_t>(seed);
  auto k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const LongWords p0 = __builtin_convertvector(c0, LongWords) * 0xD2511F53u;
    const LongWords p1 = __builtin_convertvector(c2, LongWords) * 0xCD9E8D57u;
    c0 = __builtin_convertvector(p1 >> 32, Words) ^ c1 ^ k0;
    c2 = __builtin_convertvector(p0 >> 32, Words) ^ c3 ^ k1;
    c1 = __builtin_convertvector(p1, Words);
    c3 = __builtin_convertvector(p0, Words);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const Words words[4] = {c0, c1, c2, c3};
  for (int w = 0; w < 4; ++w) {
    const Words low_bits = words[w] & 0xffffu;
    const Words high_bits = words[w] >> 16;
    for (int lane = 0; lane < kLanes; ++lane) {
      float* eight = out + lane * 8;
      eight[2 * w] = low_bits[lane] < threshold ? 0.0f : scale;
      eight[2 * w + 1] = high_bits[lane] < threshold ? 0.0f : scale;
    }
  }
}

}  // namespace
}  // namespace turbogr::TGR_SIMD
