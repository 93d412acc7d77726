// What a device fills in for clock_features.h.
#pragma once

#include <cmath>

#include "turbogr/core/host_device.h"
#include "turbogr/ops/rows/clock_features.h"

namespace turbogr::ops::kernels {

// How far a clock of `steps` steps of `seconds` has turned, in radians; times before 0 too.
TGR_HD inline double clock_angle(std::int64_t time, std::int64_t seconds, std::int64_t steps) {
  const std::int64_t round = seconds * steps;
  const std::int64_t step = ((time % round) + round) % round / seconds;
  return 2 * 3.14 * (static_cast<double>(step) / static_cast<double>(steps));
}

struct ClockPoint {
  double values[kClockFeatures];
};
TGR_HD inline ClockPoint clock_point(std::int64_t time) {
  const double hour = clock_angle(time, 3600, 24);
  const double day = clock_angle(time, 86400, 7);
  return {{std::cos(hour), std::sin(hour), std::cos(day), std::sin(day)}};
}

template <class T>
void clock_features(Cpu cpu, View<const std::int64_t, 1> times, Rows<T> features);
template <class T>
void clock_features(Cuda cuda, View<const std::int64_t, 1> times, Rows<T> features);

}  // namespace turbogr::ops::kernels
