// Draws from any distribution over V items in constant time (Walker's alias method): a uniform
// slot, then either the slot's own item or its other one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace turbogr::ops {

struct AliasSlot {
  std::uint32_t keep;  // chance of the slot's own item, in units of 2^-32
  std::int32_t other;
};

// One slot an item, so that item i is drawn with probability weights[i] / sum to within 2^-32 / V;
// one of weight 0 never is. Weights are finite, not negative, and at least one is above 0.
std::vector<AliasSlot> make_alias_table(std::span<const double> weights);

}  // namespace turbogr::ops
