#include <cuda_runtime.h>

#include <algorithm>

#include "turbogr/core/cuda_call.h"
#include "turbogr/ops/convert_kernels.h"

namespace turbogr::ops::kernels {
namespace {

constexpr int kThreads = 256;

cudaStream_t stream_of(Cuda cuda) { return static_cast<cudaStream_t>(cuda.stream); }
unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>(
      std::clamp<std::int64_t>((items + kThreads - 1) / kThreads, 1, 132 * 16));
}

template <class T, int Pack>
struct alignas(Pack * sizeof(T)) Packed {
  T values[Pack];
};

template <class To, class From, int Pack>
__global__ void convert_packs(const From* from, std::int64_t count, To* to) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  const std::int64_t packs = count / Pack;
  for (std::int64_t i = first; i < packs; i += stride) {
    const auto in = reinterpret_cast<const Packed<From, Pack>*>(from)[i];
    Packed<To, Pack> out;
#pragma unroll
    for (int e = 0; e < Pack; ++e) out.values[e] = convert<To>(in.values[e]);
    reinterpret_cast<Packed<To, Pack>*>(to)[i] = out;
  }
  for (std::int64_t i = packs * Pack + first; i < count; i += stride) to[i] = convert<To>(from[i]);
}

template <class T>
__global__ void fill_values(T value, std::int64_t count, T* to) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += stride) {
    to[i] = value;
  }
}

__device__ double block_sum(double value) {
  __shared__ double warps[kThreads / 32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0) {
    for (double part : warps) total += part;
  }
  return total;
}

template <class T>
__global__ void piece_sums(View<const T, 1> values, double* sums) {
  const std::int64_t begin = blockIdx.x * kSumPiece;
  const std::int64_t end = min(values.shape[0], begin + kSumPiece);
  double own = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    own += convert<double>(values.data[i]);
  }
  const double sum = block_sum(own);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void add_sums(const double* sums, std::int64_t count, double* total) {
  double own = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) own += sums[i];
  const double sum = block_sum(own);
  if (threadIdx.x == 0) *total = sum;
}

// A warp a row.
template <class T>
__global__ void row_inverse_norms(Rows<const T> x, double eps, Accum<T>* inverse) {
  const std::int64_t row = blockIdx.x * static_cast<std::int64_t>(kThreads / 32) + threadIdx.x / 32;
  if (row >= x.rows) return;
  double squares = 0;
  for (std::int64_t c = threadIdx.x % 32; c < x.cols; c += 32) {
    const double value = convert<double>(x(row, c));
    squares += value * value;
  }
  for (int step = 16; step > 0; step /= 2) squares += __shfl_down_sync(~0u, squares, step);
  if (threadIdx.x % 32 == 0) inverse[row] = static_cast<Accum<T>>(1 / fmax(sqrt(squares), eps));
}

bool aligned(const void* data, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

}  // namespace

template <class To, class From>
void convert_values(Cuda cuda, View<const From, 1> from, View<To, 1> to) {
  const std::int64_t count = from.shape[0];
  if (count == 0) return;
  constexpr int kPack = 16 / std::max(sizeof(To), sizeof(From));
  if (aligned(from.data, kPack * sizeof(From)) && aligned(to.data, kPack * sizeof(To))) {
    convert_packs<To, From, kPack>
        <<<blocks_for(count / kPack), kThreads, 0, stream_of(cuda)>>>(from.data, count, to.data);
  } else {
    convert_packs<To, From, 1>
        <<<blocks_for(count), kThreads, 0, stream_of(cuda)>>>(from.data, count, to.data);
  }
  TGR_CUDA_CALL(cudaGetLastError());
}

template <class T>
void fill(Cuda cuda, T value, View<T, 1> to) {
  if (to.shape[0] == 0) return;
  fill_values<T>
      <<<blocks_for(to.shape[0]), kThreads, 0, stream_of(cuda)>>>(value, to.shape[0], to.data);
  TGR_CUDA_CALL(cudaGetLastError());
}

template <class T>
void sum_values(Cuda cuda, View<const T, 1> values, double* sum) {
  WorkspaceScope scratch(cuda.workspace);
  const View<double, 1> sums = scratch.take<double>((values.shape[0] + kSumPiece - 1) / kSumPiece);
  if (sums.shape[0] > 0) {
    piece_sums<T>
        <<<static_cast<unsigned>(sums.shape[0]), kThreads, 0, stream_of(cuda)>>>(values, sums.data);
  }
  add_sums<<<1, kThreads, 0, stream_of(cuda)>>>(sums.data, sums.shape[0], sum);
  TGR_CUDA_CALL(cudaGetLastError());
}

template <class T>
void inverse_norms(Cuda cuda, Rows<const T> x, double eps, View<Accum<T>, 1> inverse) {
  if (x.rows == 0) return;
  const auto blocks = static_cast<unsigned>((x.rows + kThreads / 32 - 1) / (kThreads / 32));
  row_inverse_norms<T><<<blocks, kThreads, 0, stream_of(cuda)>>>(x, eps, inverse.data);
  TGR_CUDA_CALL(cudaGetLastError());
}

#define TGR_CONVERT(To, From) \
  template void convert_values<To, From>(Cuda, View<const From, 1>, View<To, 1>);
#define TGR_INSTANTIATE(T)                                      \
  TGR_CONVERT(T, double)                                        \
  TGR_CONVERT(T, float)                                         \
  TGR_CONVERT(T, bf16)                                          \
  template void sum_values<T>(Cuda, View<const T, 1>, double*); \
  template void inverse_norms<T>(Cuda, Rows<const T>, double, View<Accum<T>, 1>);
#define TGR_FILL(T) template void fill<T>(Cuda, T, View<T, 1>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
TGR_FILL(double)
TGR_FILL(float)
TGR_FILL(bf16)
TGR_FILL(std::int64_t)
TGR_FILL(std::int32_t)
#undef TGR_CONVERT
#undef TGR_INSTANTIATE
#undef TGR_FILL

}  // namespace turbogr::ops::kernels
