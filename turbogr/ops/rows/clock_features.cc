#include "turbogr/ops/rows/clock_features.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/rows/clock_features_kernels.h"

namespace turbogr::ops {

template <class T>
void clock_features(const Context& ctx, View<const std::int64_t, 1> times, Rows<T> features) {
  const char* op = "clock_features";
  check_vector(op, "times", times, times.shape[0]);
  check_rows(op, "features", features, times.shape[0], kClockFeatures);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::clock_features<T>(device, times, features); });
}

template void clock_features<double>(const Context&, View<const std::int64_t, 1>, Rows<double>);
template void clock_features<float>(const Context&, View<const std::int64_t, 1>, Rows<float>);
template void clock_features<bf16>(const Context&, View<const std::int64_t, 1>, Rows<bf16>);

}  // namespace turbogr::ops
