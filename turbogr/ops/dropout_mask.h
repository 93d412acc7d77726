// How a dropout mask is drawn: the definition that dropout and everything it is fused into share.
#pragma once

#include <cmath>
#include <cstdint>

#include "turbogr/core/philox.h"
#include "turbogr/ops/dropout.h"

namespace turbogr::ops {

// A row's draw. One Philox block serves eight columns, sixteen bits each.
struct DropoutRow {
  std::uint64_t seed;
  std::uint64_t row_key;
  std::uint64_t site;
  std::uint32_t threshold;  // a column is dropped when its sixteen bits are below this
  double scale;             // of a kept column: 1 / (1 - threshold / 2^16)

  double factor(std::int64_t column) const {
    const auto block = philox(seed, row_key, (site << 24) | static_cast<std::uint64_t>(column / 8));
    const auto lane = static_cast<std::uint32_t>(column % 8);
    const std::uint32_t bits = (block[lane / 2] >> (16 * (lane % 2))) & 0xffffu;
    return bits < threshold ? 0.0 : scale;
  }
};

inline DropoutRow dropout_row(const DropoutOptions& options, std::int64_t row) {
  const auto threshold = static_cast<std::uint32_t>(std::lround(options.rate * 65536.0));
  return {
      .seed = options.seed,
      .row_key = options.row_keys.empty() ? static_cast<std::uint64_t>(row) : options.row_keys(row),
      .site = options.site,
      .threshold = threshold,
      .scale = 65536.0 / (65536.0 - threshold)};
}

}  // namespace turbogr::ops
