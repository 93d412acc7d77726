#include "turbogr/core/dtype.h"
#include "turbogr/ops/rows/clock_features_kernels.h"

namespace turbogr::ops::kernels {

template <class T>
void clock_features(Cpu cpu, View<const std::int64_t, 1> times, Rows<T> features) {
  parallel_ranges(cpu.pool, times.shape[0], 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const ClockPoint point = clock_point(times(i));
      for (std::int64_t c = 0; c < kClockFeatures; ++c)
        features(i, c) = convert<T>(point.values[c]);
    }
  });
}

template void clock_features<double>(Cpu, View<const std::int64_t, 1>, Rows<double>);
template void clock_features<float>(Cpu, View<const std::int64_t, 1>, Rows<float>);
template void clock_features<bf16>(Cpu, View<const std::int64_t, 1>, Rows<bf16>);

}  // namespace turbogr::ops::kernels
