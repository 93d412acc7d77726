#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/exact_sums.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kSumThreads = 128;

// A warp a sum, a lane a word; the one that counts what is not finite is the last lane's too.
__global__ void __launch_bounds__(kSumThreads)
    add_exact_sums_kernel(ExactSums sums, float scale, float* to, int direction) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (i >= sums.size) return;
  const auto whole = [&](int word) {
    const unsigned long long* first = sums.words + word * sums.copies * sums.size + i;
    unsigned long long all = 0;
#pragma unroll 8
    for (int copy = 0; copy < sums.copies; ++copy) all += first[copy * sums.size];
    return static_cast<long long>(all);
  };
  // A float's last binary place is 150 below its exponent.
  double sum = scalbn(static_cast<double>(whole(lane)), kExactPlaces * lane - 150);
  if (lane == 31 && whole(32) != 0) sum = __longlong_as_double(0x7ff8000000000000ll);
  for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0 && sum != 0) to[direction * i] += scale * static_cast<float>(sum);
}

}  // namespace

void launch_add_exact_sums(const ExactSums& sums, float scale, float* to, int direction,
                           cudaStream_t stream) {
  static_assert(kExactWords == 33);
  if (sums.size == 0) return;
  constexpr int kWarps = kSumThreads / 32;
  add_exact_sums_kernel<<<(sums.size + kWarps - 1) / kWarps, kSumThreads, 0, stream>>>(
      sums, scale, to, direction);
  check(cudaGetLastError(), "attention exact sums");
}

}  // namespace turbogr::cuda
