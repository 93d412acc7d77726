// What a device fills in for draw_negatives.h.
#pragma once

#include "turbogr/ops/rows/draw_negatives.h"

namespace turbogr::ops::kernels {

void draw_negatives(Cpu cpu, const NegativeSource& source, const NegativeKey& key,
                    View<const std::uint64_t, 1> row_keys, View<std::int64_t, 2> ids);

void draw_places(Cpu cpu, const NegativeKey& key, View<const std::uint64_t, 1> row_keys,
                 View<const std::int32_t, 1> place_of, View<std::int32_t, 2> places);
void draw_places(Cuda cuda, const NegativeKey& key, View<const std::uint64_t, 1> row_keys,
                 View<const std::int32_t, 1> place_of, View<std::int32_t, 2> places);

}  // namespace turbogr::ops::kernels
