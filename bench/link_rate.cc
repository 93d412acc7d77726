#include "bench/link_rate.h"

#include <algorithm>

#include "turbogr/core/device_memory.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/trace.h"

namespace turbogr::bench {

LinkRates measure_link(const Context& ctx) {
  if (ctx.device() != Device::kCuda) return {};
  constexpr std::int64_t kBytes = 256 << 20;
  constexpr int kRuns = 3;
  const Context other({.device = Device::kCuda, .threads = 1});
  const Tensor host_from(DType::kU8, {kBytes}, Device::kPinned);
  Tensor host_to(DType::kU8, {kBytes}, Device::kPinned);
  const Tensor device_from(DType::kU8, {kBytes}, Device::kCuda);
  Tensor device_to(DType::kU8, {kBytes}, Device::kCuda);
  const auto best_rate = [&](bool in, bool out) {
    double best = 0;
    for (int run = 0; run <= kRuns; ++run) {
      const std::int64_t begin = Trace::now_ns();
      if (in) copy_bytes(ctx, device_to.data(), host_from.data(), host_from.bytes());
      if (out) copy_bytes(other, host_to.data(), device_from.data(), device_from.bytes());
      synchronize(ctx);
      synchronize(other);
      const auto ns = static_cast<double>(Trace::now_ns() - begin);
      best = std::max(best, static_cast<double>(kBytes) * (in + out) / ns);
    }
    return best;
  };
  return {best_rate(true, false), best_rate(false, true), best_rate(true, true)};
}

}  // namespace turbogr::bench
