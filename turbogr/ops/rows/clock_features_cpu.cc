#include <cmath>

#include "turbogr/core/dtype.h"
#include "turbogr/ops/rows/clock_features_kernels.h"

namespace turbogr::ops::kernels {
namespace {

// How far a clock of `steps` steps of `seconds` has turned, in [0, 1); times before 0 too.
double turned(std::int64_t time, std::int64_t seconds, std::int64_t steps) {
  const std::int64_t round = seconds * steps;
  const std::int64_t step = ((time % round) + round) % round / seconds;
  return static_cast<double>(step) / static_cast<double>(steps);
}

}  // namespace

template <class T>
void clock_features(Cpu cpu, View<const std::int64_t, 1> times, Rows<T> features) {
  constexpr double kTurn = 2 * 3.14;
  parallel_ranges(cpu.pool, times.shape[0], 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double hour = kTurn * turned(times(i), 3600, 24);
      const double day = kTurn * turned(times(i), 86400, 7);
      const double values[kClockFeatures] = {std::cos(hour), std::sin(hour), std::cos(day),
                                             std::sin(day)};
      for (std::int64_t c = 0; c < kClockFeatures; ++c) features(i, c) = convert<T>(values[c]);
    }
  });
}

template void clock_features<double>(Cpu, View<const std::int64_t, 1>, Rows<double>);
template void clock_features<float>(Cpu, View<const std::int64_t, 1>, Rows<float>);
template void clock_features<bf16>(Cpu, View<const std::int64_t, 1>, Rows<bf16>);

}  // namespace turbogr::ops::kernels
