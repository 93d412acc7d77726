// Uniform negatives, a pure function of (seed, step, row key): neither threads nor ranks change a
// draw. A draw may be the positive; the loss masks it.
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::train {

struct NegativeKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

// ids [N, R]: R draws from [0, catalogue) for each token; row_keys [N] tell tokens apart.
void draw_own_negatives(const Context& ctx, const NegativeKey& key, std::int64_t catalogue,
                        View<const std::uint64_t, 1> row_keys, View<std::int64_t, 2> ids);
// ids [R]: one set for all tokens of the step.
void draw_shared_negatives(const NegativeKey& key, std::int64_t catalogue,
                           View<std::int64_t, 1> ids);

}  // namespace turbogr::train
