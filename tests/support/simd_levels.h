// Every instruction set this machine can run, so that a test reaches each dispatch branch.
#pragma once

#include <vector>

#include "turbogr/core/simd_level.h"

namespace turbogr::test {

inline std::vector<SimdLevel> simd_levels() {
  std::vector<SimdLevel> levels;
  for (int level = 0; level <= static_cast<int>(best_simd_level()); ++level) {
    levels.push_back(static_cast<SimdLevel>(level));
  }
  return levels;
}

}  // namespace turbogr::test
