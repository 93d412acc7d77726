#include "turbogr/cuda/columns.cuh"
#include "turbogr/ops/rows/clock_features_kernels.h"

namespace turbogr::ops::kernels {
namespace {

constexpr unsigned kThreads = 128;

template <class T>
__global__ void clock_features_kernel(View<const std::int64_t, 1> times, Rows<T> features) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= times.shape[0]) return;
  const ClockPoint point = clock_point(times.data[i]);
#pragma unroll
  for (int c = 0; c < kClockFeatures; ++c) features(i, c) = convert<T>(point.values[c]);
}

}  // namespace

template <class T>
void clock_features(Cuda cuda, View<const std::int64_t, 1> times, Rows<T> features) {
  if (times.shape[0] == 0) return;
  const auto blocks = static_cast<unsigned>(cuda::divide_up(times.shape[0], kThreads));
  clock_features_kernel<T><<<blocks, kThreads, 0, cuda::stream_of(cuda.stream)>>>(times, features);
  cuda::check_launch("clock_features");
}

template void clock_features<double>(Cuda, View<const std::int64_t, 1>, Rows<double>);
template void clock_features<float>(Cuda, View<const std::int64_t, 1>, Rows<float>);
template void clock_features<bf16>(Cuda, View<const std::int64_t, 1>, Rows<bf16>);

}  // namespace turbogr::ops::kernels
