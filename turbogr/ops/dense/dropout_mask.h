// How a dropout mask is drawn: the definition that dropout and everything it is fused into share.
#pragma once

#include <cmath>
#include <cstdint>

#include "turbogr/core/philox.h"
#include "turbogr/ops/dense/dropout.h"

namespace turbogr::ops {

// A row's draw. One Philox block serves eight columns, sixteen bits each.
struct DropoutRow {
  std::uint64_t seed;
  std::uint64_t row_key;
  std::uint64_t site;
  std::uint32_t threshold;  // a column is dropped when its sixteen bits are below this
  double scale;             // of a kept column: 1 / (1 - threshold / 2^16)

  TGR_HD double factor(std::int64_t column) const {
    const auto block = philox(seed, row_key, (site << 24) | static_cast<std::uint64_t>(column / 8));
    const auto lane = static_cast<std::uint32_t>(column % 8);
    const std::uint32_t bits = (block[lane / 2] >> (16 * (lane % 2))) & 0xffffu;
    return bits < threshold ? 0.0 : scale;
  }
};

// The draws of all rows of one dropout; what kernels are given.
struct DropoutDraw {
  std::uint64_t seed, site;
  const std::uint64_t* row_keys;  // or null: the row's index
  std::uint32_t threshold;
  double scale;

  explicit DropoutDraw(const DropoutOptions& options)
      : seed(options.seed),
        site(options.site),
        row_keys(options.row_keys.empty() ? nullptr : options.row_keys.data),
        threshold(static_cast<std::uint32_t>(std::lround(options.rate * 65536.0))),
        scale(65536.0 / (65536.0 - threshold)) {}

  TGR_HD DropoutRow row(std::int64_t index) const {
    return {.seed = seed,
            .row_key = row_keys == nullptr ? static_cast<std::uint64_t>(index) : row_keys[index],
            .site = site,
            .threshold = threshold,
            .scale = scale};
  }
};

inline DropoutRow dropout_row(const DropoutOptions& options, std::int64_t row) {
  return DropoutDraw(options).row(row);
}

}  // namespace turbogr::ops
