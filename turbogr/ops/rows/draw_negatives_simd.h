// The vectorised draws of draw_negatives_cpu.cc, one table per instruction set.
#pragma once

#include <cstdint>

#include "turbogr/core/simd_level.h"

namespace turbogr {

struct UniformDraws {
  // ids[2 p] and ids[2 p + 1], p below `pairs`, in [0, bound): what draw_negatives.h makes of the
  // random words at counter (row_key, first + p). bound is below 2^32, and adding p to the first
  // stays within its lower word.
  void (*draw)(std::uint64_t seed, std::uint64_t row_key, std::uint64_t first, std::int64_t pairs,
               std::uint32_t bound, std::int64_t* ids);
};

TGR_SIMD_TABLES(UniformDraws, uniform_draws)

}  // namespace turbogr
