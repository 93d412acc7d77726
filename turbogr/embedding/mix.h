// Spreads the bits of an id (the finaliser of SplitMix64; Steele, Lea and Flood, 2014).
#pragma once

#include <cstdint>

namespace turbogr::embedding {

inline std::uint64_t mixed(std::uint64_t word) {
  word ^= word >> 30;
  word *= 0xbf58476d1ce4e5b9u;
  word ^= word >> 27;
  word *= 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

}  // namespace turbogr::embedding
