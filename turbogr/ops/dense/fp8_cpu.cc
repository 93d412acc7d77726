#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "turbogr/ops/dense/fp8_kernels.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kRowsAtOnce = 64;

template <class T>
float largest_magnitude_of(Cpu cpu, Rows<const T> x) {
  std::atomic<std::uint32_t> largest = 0;
  parallel_ranges(cpu.pool, x.rows, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end, int) {
    std::uint32_t most = 0;
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = 0; c < x.cols; ++c) {
        most = std::max(most, magnitude_bits(convert<float>(x(r, c))));
      }
    }
    std::uint32_t known = largest;
    while (known < most && !largest.compare_exchange_weak(known, most)) {
    }
  });
  return std::bit_cast<float>(largest.load());
}

}  // namespace

template <class T>
void quantise(Cpu cpu, Rows<const T> x, const Fp8Rows<T>& out) {
  const float scale = fp8_scale(out.format, out.scale->largest), inverse = 1 / scale;
  const float seen = largest_magnitude_of(cpu, x);
  if (out.values != nullptr) {
    parallel_ranges(cpu.pool, x.rows, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t r = begin; r < end; ++r) {
        for (std::int64_t c = 0; c < x.cols; ++c) {
          const float scaled = convert<float>(x(r, c)) * scale;
          out.values[r * x.cols + c] = convert<T>(round_to_fp8(out.format, scaled) * inverse);
        }
      }
    });
  }
  out.scale->inverse = inverse;
  if (std::isfinite(seen)) out.scale->largest = seen;
}

template void quantise<double>(Cpu, Rows<const double>, const Fp8Rows<double>&);
template void quantise<float>(Cpu, Rows<const float>, const Fp8Rows<float>&);
template void quantise<bf16>(Cpu, Rows<const bf16>, const Fp8Rows<bf16>&);

}  // namespace turbogr::ops::kernels
