#include "turbogr/c_api/widen.h"
#include "turbogr/core/cuda_call.h"

namespace turbogr::c_api {
namespace {

constexpr int kThreads = 256;

unsigned blocks_of(std::int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

__global__ void widen_kernel(const std::int32_t* from, std::int64_t count, std::int64_t* to) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) to[i] = from[i];
}

__global__ void lengths_kernel(const std::int64_t* offsets, std::int64_t count,
                               std::int64_t* lengths) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) lengths[i] = offsets[i + 1] - offsets[i];
}

}  // namespace

void widen(Cuda cuda, const std::int32_t* from, std::int64_t count, std::int64_t* to) {
  if (count == 0) return;
  widen_kernel<<<blocks_of(count), kThreads, 0, static_cast<cudaStream_t>(cuda.stream)>>>(
      from, count, to);
  TGR_CUDA_CALL(cudaGetLastError());
}

void lengths_of(Cuda cuda, const std::int64_t* offsets, std::int64_t count, std::int64_t* lengths) {
  if (count == 0) return;
  lengths_kernel<<<blocks_of(count), kThreads, 0, static_cast<cudaStream_t>(cuda.stream)>>>(
      offsets, count, lengths);
  TGR_CUDA_CALL(cudaGetLastError());
}

}  // namespace turbogr::c_api
