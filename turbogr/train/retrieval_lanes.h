// Rows of a GPU's trace; the lanes between are of row_prefetch.cc.
#pragma once

namespace turbogr::train {

inline constexpr int kDeviceLane = 0;
inline constexpr int kDrawLane = 3;
inline constexpr int kBesideLane = 4;

}  // namespace turbogr::train
