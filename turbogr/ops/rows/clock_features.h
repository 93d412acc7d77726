// The hour of the day and the day of the week as points on a circle: cos and sin of the hour's
// angle, then of the day's. A full turn is 6.28, not 2 pi: the constant of the published models,
// which trained weights know.
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

inline constexpr std::int64_t kClockFeatures = 4;

// times [M] in seconds; features [M, 4].
template <class T>
void clock_features(const Context& ctx, View<const std::int64_t, 1> times, Rows<T> features);

}  // namespace turbogr::ops
