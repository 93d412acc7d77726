// Memory of the device for the stand-alone programs, and what fills and searches it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "turbogr/cuda/check.cuh"

namespace turbogr::bench {

using cuda::check;

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size = 0) { resize(size); }
  explicit DeviceArray(const std::vector<T>& from) : DeviceArray(from.size()) { copy_from(from); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  // What it held is lost.
  void resize(std::size_t size) {
    check(cudaFree(data_), "cudaFree");
    data_ = nullptr;
    size_ = size;
    if (size > 0) check(cudaMalloc(&data_, size * sizeof(T)), "cudaMalloc");
  }
  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  void fill_bytes(int byte) const {
    if (size_ > 0) check(cudaMemset(data_, byte, size_ * sizeof(T)), "cudaMemset");
  }
  void copy_from(const std::vector<T>& from) const {
    check(cudaMemcpy(data_, from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  std::vector<T> to_host() const {
    std::vector<T> host(size_);
    check(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

__device__ inline std::uint32_t hash(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  x ^= x >> 33;
  return static_cast<std::uint32_t>(x);
}

// Normal numbers, by the sum of eight uniform ones.
static __global__ void fill_normal_kernel(__nv_bfloat16* to, std::int64_t size, float scale,
                                          std::uint64_t seed) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < size;
       i += stride) {
    float sum = 0;
    for (std::uint64_t part = 0; part < 4; ++part) {
      const std::uint32_t bits =
          hash(seed * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(i) * 4 + part);
      sum += static_cast<float>(bits & 0xffff) + static_cast<float>(bits >> 16) - 65535.f;
    }
    to[i] = __float2bfloat16(sum / 65536.f * 1.2247f * scale);
  }
}
inline void fill_normal(const DeviceArray<__nv_bfloat16>& array, float scale, std::uint64_t seed) {
  if (array.size() == 0) return;
  fill_normal_kernel<<<1024, 256>>>(array.data(), static_cast<std::int64_t>(array.size()), scale,
                                    seed);
  check(cudaGetLastError(), "fill_normal");
}

// Rows whose bytes were all ones, not a number, before somebody wrote the first `width` of their
// columns. Adds to counts[0] what is not finite there and to counts[1] what was written behind.
static __global__ void count_poison_kernel(const __nv_bfloat16* rows, std::int64_t stride,
                                           std::int64_t width, unsigned long long* counts) {
  const std::int64_t row = blockIdx.x;
  for (std::int64_t c = threadIdx.x; c < stride; c += blockDim.x) {
    const float x = __bfloat162float(rows[row * stride + c]);
    if (c < width && !isfinite(x)) atomicAdd(counts, 1ull);
    if (c >= width && !isnan(x)) atomicAdd(counts + 1, 1ull);
  }
}
inline void count_poison(const DeviceArray<__nv_bfloat16>& array, std::int64_t rows,
                         std::int64_t width, const DeviceArray<unsigned long long>& counts) {
  if (rows == 0) return;
  const std::int64_t stride = static_cast<std::int64_t>(array.size()) / rows;
  count_poison_kernel<<<static_cast<unsigned>(rows), 128>>>(array.data(), stride, width,
                                                            counts.data());
  check(cudaGetLastError(), "count_poison");
}

}  // namespace turbogr::bench
