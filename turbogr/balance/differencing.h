// Karmarkar and Karp's differencing method for many parts ("The differencing method of set
// partitioning", 1982): partial plans with the largest spread are laid over each other, the
// heaviest part of one on the lightest of the other, until one plan is left.
#pragma once

#include <cstdint>
#include <span>

namespace turbogr::balance {

// Writes part_of [count], each in [0, parts). `order` lists the items by falling cost.
void difference(std::span<const double> costs, std::span<const std::int32_t> order, int parts,
                std::span<std::int32_t> part_of);

}  // namespace turbogr::balance
