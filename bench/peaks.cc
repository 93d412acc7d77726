#include "bench/peaks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/gemm.h"
#include "bench/timing.h"
#include "turbogr/core/philox.h"
#include "turbogr/core/tensor.h"

namespace turbogr::bench {
namespace {

constexpr int kRepeats = 7;

template <class T>
Tensor random_matrix(std::int64_t size, std::uint64_t seed) {
  Tensor matrix(dtype_of<T>(), {size, size});
  PhiloxStream random(seed);
  T* data = reinterpret_cast<T*>(matrix.data());
  for (std::int64_t i = 0; i < matrix.size(); ++i) {
    data[i] = convert<T>(static_cast<float>(random.uniform()) - 0.5f);
  }
  return matrix;
}

}  // namespace

double gemm_peak_gflops(const Context& ctx, DType dtype, PeakSize peak_size) {
  const std::int64_t size = peak_size == PeakSize::kFull ? 2048 : 256;
  const bool half = dtype == DType::kBf16;
  const Tensor a = half ? random_matrix<bf16>(size, 1) : random_matrix<float>(size, 1);
  const Tensor b = half ? random_matrix<bf16>(size, 2) : random_matrix<float>(size, 2);
  Tensor c(DType::kF32, {size, size});
  const Gemm gemm({.m = size, .n = size, .k = size, .dtype = dtype}, ctx);
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double ms = milliseconds_of([&] { gemm.run(a.data(), b.data(), c.data()); });
    best = std::max(best, 2.0 * std::pow(static_cast<double>(size), 3) / ms * 1e-6);
  }
  return best;
}

double copy_peak_gbytes(const Context& ctx, PeakSize peak_size) {
  const std::int64_t bytes = std::int64_t{peak_size == PeakSize::kFull ? 256 : 8} << 20;
  constexpr std::int64_t kPiece = std::int64_t{4} << 20;
  Tensor from(DType::kU8, {bytes});
  Tensor to(DType::kU8, {bytes});
  std::memset(from.data(), 1, from.bytes());
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double ms = milliseconds_of([&] {
      parallel_ranges(ctx.pool(), bytes, kPiece, [&](std::int64_t begin, std::int64_t end, int) {
        std::memcpy(to.data() + begin, from.data() + begin, static_cast<std::size_t>(end - begin));
      });
    });
    best = std::max(best, 2.0 * static_cast<double>(bytes) / ms * 1e-6);
  }
  return best;
}

}  // namespace turbogr::bench
