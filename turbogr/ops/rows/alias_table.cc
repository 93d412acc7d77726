#include "turbogr/ops/rows/alias_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "turbogr/core/check.h"

namespace turbogr::ops {

std::vector<AliasSlot> make_alias_table(std::span<const double> weights) {
  constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
  TGR_CHECK(weights.size() <= kMost, "an alias table of ", weights.size(),
            " items; at most 2^31 - 1 fit one");
  double total = 0;
  std::size_t heaviest = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    TGR_CHECK(weights[i] >= 0 && std::isfinite(weights[i]), "weight ", weights[i], " of item ", i,
              "; an alias table takes finite weights of 0 and more");
    total += weights[i];
    if (weights[i] > weights[heaviest]) heaviest = i;
  }
  TGR_CHECK(total > 0 && std::isfinite(total), "the weights of ", weights.size(), " items sum to ",
            total, "; an alias table needs one above 0");

  const double scale = static_cast<double>(weights.size()) / total;
  std::vector<double> left(weights.size());  // of a slot's worth of probability
  std::vector<std::int32_t> small, large;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left[i] = weights[i] * scale;
    (left[i] < 1 ? small : large).push_back(static_cast<std::int32_t>(i));
  }
  std::vector<AliasSlot> slots(weights.size());
  const auto fill = [&](std::int32_t own, std::int32_t other) {
    const double units = std::round(left[static_cast<std::size_t>(own)] * 0x1p32);
    slots[static_cast<std::size_t>(own)] = {static_cast<std::uint32_t>(std::min(units, 0x1p32 - 1)),
                                            other};
  };
  while (!small.empty() && !large.empty()) {
    const std::int32_t own = small.back();
    const std::int32_t other = large.back();
    small.pop_back();
    fill(own, other);
    double& rest = left[static_cast<std::size_t>(other)];
    rest -= 1 - left[static_cast<std::size_t>(own)];
    if (rest < 1) {
      large.pop_back();
      small.push_back(other);
    }
  }
  // Full but for rounding, whichever list they are left in.
  for (const std::int32_t own : large) fill(own, own);
  for (const std::int32_t own : small) {
    const bool never = weights[static_cast<std::size_t>(own)] == 0;
    fill(own, never ? static_cast<std::int32_t>(heaviest) : own);
  }
  return slots;
}

}  // namespace turbogr::ops
