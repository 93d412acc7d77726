#include "turbogr/run/peak_rate.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "turbogr/core/device_memory.h"
#include "turbogr/core/philox.h"
#include "turbogr/core/trace.h"
#include "turbogr/ops/dense/linear.h"

namespace turbogr::run {
namespace {

// Zeros would be multiplied faster. A million random numbers over and over are as good as others,
// and do not hold up the start of a run.
template <class T>
Tensor random_matrix(std::int64_t rows, std::int64_t cols) {
  Tensor matrix(dtype_of<T>(), {rows, cols});
  T* values = reinterpret_cast<T*>(matrix.data());
  const std::int64_t drawn = std::min<std::int64_t>(matrix.size(), 1 << 20);
  PhiloxStream random(1);
  for (std::int64_t i = 0; i < drawn; ++i) {
    values[i] = convert<T>(static_cast<float>(random.uniform() - 0.5));
  }
  for (std::int64_t i = drawn; i < matrix.size(); i += drawn) {
    std::copy_n(values, std::min(drawn, matrix.size() - i), values + i);
  }
  return matrix;
}

// Others may have a share of the machine for some of the time: the best of a third of a second.
constexpr int kLeastRepeats = 5;
constexpr std::int64_t kMeasuringNs = 300'000'000;

// Data sheets, dense, without sparsity.
double published_tflops(const std::string& gpu) {
  if (gpu.find("H200") != std::string::npos || gpu.find("H100 80GB HBM3") != std::string::npos) {
    return 989;
  }
  return gpu.find("A100") != std::string::npos ? 312 : 0;
}

template <class T>
double measured_tflops(const Context& ctx) {
  const bool gpu = ctx.device() == Device::kCuda;
  // Enough tiles for every multiprocessor several times; the matrix units' products are shorter.
  const std::int64_t large = std::is_same_v<T, bf16> ? 8192 : 4096;
  const std::int64_t rows = gpu ? large : 2048;
  const std::int64_t width = gpu ? large : 1024;
  Tensor x(dtype_of<T>(), {rows, width}, ctx.device());
  Tensor w(dtype_of<T>(), {width, width}, ctx.device());
  Tensor y(dtype_of<T>(), {rows, width}, ctx.device());
  copy_tensor(ctx, x, random_matrix<T>(rows, width));
  copy_tensor(ctx, w, random_matrix<T>(width, width));
  ops::PackedWeight<T> packed(ctx, width, width);
  ctx.workspace().reserve(ops::linear_workspace_bytes<T>(ctx, packed));
  packed.pack(ctx, std::as_const(w).template view<T, 2>());
  double best = 0;
  const std::int64_t start = Trace::now_ns();
  for (int repeat = 0; repeat < kLeastRepeats || Trace::now_ns() - start < kMeasuringNs; ++repeat) {
    synchronize(ctx);
    const std::int64_t begin = Trace::now_ns();
    ops::linear<T>(ctx, std::as_const(x).template view<T, 2>(), packed, {},
                   y.template view<T, 2>());
    synchronize(ctx);
    const auto ns = static_cast<double>(Trace::now_ns() - begin);
    best = std::max(best, 2e-3 * static_cast<double>(rows * width * width) / ns);
  }
  return best;
}

}  // namespace

bool PeakRate::reached(double tflops) {
  if (!again_ || tflops <= tflops_) return false;
  tflops_ = tflops;
  try {
    tflops_ = std::max(tflops, again_());
  } catch (const OutOfMemory&) {
    // Training goes on without a better figure.
  }
  return true;
}

template <class T>
PeakRate make_peak_rate(const Context& ctx, double given) {
  if (given > 0) return PeakRate(given);
  if (std::is_same_v<T, bf16> && ctx.device() == Device::kCuda) {
    const double published = published_tflops(device_name());
    if (published > 0) return PeakRate(published);
  }
  return PeakRate(measured_tflops<T>(ctx), [&ctx] { return measured_tflops<T>(ctx); });
}

template PeakRate make_peak_rate<float>(const Context& ctx, double given);
template PeakRate make_peak_rate<bf16>(const Context& ctx, double given);

}  // namespace turbogr::run
