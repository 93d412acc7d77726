#include <cuda_runtime.h>

#include <type_traits>

#include "turbogr/core/cuda_call.h"
#include "turbogr/ops/dense/column_sums_cuda.cuh"
#include "turbogr/ops/dense/linear_kernels.h"
#include "turbogr/ops/dense/linear_packed.h"
#include "turbogr/ops/dense/matmul_cuda.h"

namespace turbogr::ops {
namespace {

constexpr int kThreads = 256;

// A row's elements in packs of 16 bytes where everything allows it, else one by one.
template <class T, int Pack>
struct alignas(Pack * sizeof(T)) Packed {
  T values[Pack];
};

template <class T, int Pack>
__global__ void finish(Rows<const T> z, Rows<const T> residual, bool silu, Rows<T> y) {
  using A = Accum<T>;
  const std::int64_t packs = z.cols / Pack;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
       i < z.rows * packs; i += stride) {
    const std::int64_t row = i / packs, col = i % packs * Pack;
    const auto in = *reinterpret_cast<const Packed<T, Pack>*>(z.row(row) + col);
    Packed<T, Pack> add, out;
    if (residual.data != nullptr) {
      add = *reinterpret_cast<const Packed<T, Pack>*>(residual.row(row) + col);
    }
#pragma unroll
    for (int e = 0; e < Pack; ++e) {
      A value = convert<A>(in.values[e]);
      if (silu) value *= cuda::sigmoid(value);
      if (residual.data != nullptr) value += convert<A>(add.values[e]);
      out.values[e] = convert<T>(value);
    }
    *reinterpret_cast<Packed<T, Pack>*>(y.row(row) + col) = out;
  }
}

template <class T, int Pack>
__global__ void silu_slope(Rows<const T> z, Rows<const T> dy, Rows<T> dz) {
  using A = Accum<T>;
  const std::int64_t packs = z.cols / Pack;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
       i < z.rows * packs; i += stride) {
    const std::int64_t row = i / packs, col = i % packs * Pack;
    const auto in = *reinterpret_cast<const Packed<T, Pack>*>(z.row(row) + col);
    const auto up = *reinterpret_cast<const Packed<T, Pack>*>(dy.row(row) + col);
    Packed<T, Pack> out;
#pragma unroll
    for (int e = 0; e < Pack; ++e) {
      const A value = convert<A>(in.values[e]);
      const A s = cuda::sigmoid(value);
      out.values[e] = convert<T>(convert<A>(up.values[e]) * s * (1 + value * (1 - s)));
    }
    *reinterpret_cast<Packed<T, Pack>*>(dz.row(row) + col) = out;
  }
}

template <class T>
__global__ void round_bias(const Accum<T>* bias, std::int64_t count, T* rounded) {
  const std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (i < count) rounded[i] = convert<T>(bias[i]);
}

unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>(std::min<std::int64_t>((items + kThreads - 1) / kThreads, 132 * 16));
}

template <class T>
bool packs(Rows<const T> rows) {
  return rows.data == nullptr || (reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 &&
                                  rows.stride * static_cast<std::int64_t>(sizeof(T)) % 16 == 0);
}

cudaStream_t stream_of(Cuda cuda) { return static_cast<cudaStream_t>(cuda.stream); }

}  // namespace

namespace kernels {

template <class T>
void pack_weight(Cuda cuda, typename PackedWeight<T>::State& state, View<const T, 2> w) {
  TGR_CUDA_CALL(cudaMemcpyAsync(state.forward.data(), w.data, state.forward.bytes(),
                                cudaMemcpyDeviceToDevice, stream_of(cuda)));
}

template <class T>
void linear(Cuda cuda, Rows<const T> x, const typename PackedWeight<T>::State& weight,
            const LinearOptions<T>& options, Rows<T> y, Rows<T> z) {
  const bool silu = options.activation == Activation::kSilu;
  const bool apart = z.data != nullptr || silu;  // what follows the product is a pass of its own
  TGR_CHECK(!silu || z.data != nullptr || options.residual.data != y.data,
            "linear: y is the residual and no z is given; on a GPU an activation then needs one");
  const Rows<T> product = z.data != nullptr ? z : y;
  WorkspaceScope scratch(cuda.workspace);
  Matmul matmul_of = {.in = dtype_of<T>(),
                      .out = dtype_of<T>(),
                      .m = x.rows,
                      .n = weight.outputs,
                      .k = weight.inputs,
                      .a = x.data,
                      .a_stride = x.stride,
                      .b = weight.forward.data(),
                      .b_stride = weight.outputs,
                      .d = product.data,
                      .d_stride = product.stride};
  if (options.bias.data != nullptr) {
    if constexpr (std::is_same_v<T, Accum<T>>) {
      matmul_of.bias = options.bias.data;
    } else {  // the library wants it in the format of the result
      const View<T, 1> rounded = scratch.take<T>(weight.outputs);
      round_bias<T><<<blocks_for(weight.outputs), kThreads, 0, stream_of(cuda)>>>(
          options.bias.data, weight.outputs, rounded.data);
      matmul_of.bias = rounded.data;
    }
  }
  if (!apart && options.residual.data != nullptr) {
    matmul_of.c = options.residual.data;
    matmul_of.c_stride = options.residual.stride;
    matmul_of.beta = 1;
  }
  matmul(cuda, matmul_of);
  if (!apart) return;
  const SectionScope section(cuda.sections, cuda.stream, Section::kElementwise);
  constexpr int kPack = 16 / sizeof(T);
  const Rows<const T> in = product;
  if (y.cols % kPack == 0 && packs<T>(in) && packs<T>(options.residual) && packs<T>(y)) {
    finish<T, kPack><<<blocks_for(y.rows * y.cols / kPack), kThreads, 0, stream_of(cuda)>>>(
        in, options.residual, silu, y);
  } else {
    finish<T, 1><<<blocks_for(y.rows * y.cols), kThreads, 0, stream_of(cuda)>>>(
        in, options.residual, silu, y);
  }
  TGR_CUDA_CALL(cudaGetLastError());
}

template <class T>
void linear_backward(Cuda cuda, Rows<const T> x, const typename PackedWeight<T>::State& weight,
                     Rows<const T> dy, const LinearBackwardOptions<T>& options,
                     const LinearGradients<T>& gradients) {
  using A = Accum<T>;
  WorkspaceScope scratch(cuda.workspace);
  Rows<const T> dz = dy;
  if (options.activation == Activation::kSilu) {
    const SectionScope section(cuda.sections, cuda.stream, Section::kElementwise);
    const Rows<T> made = scratch.take<T, 2>({dy.rows, dy.cols});
    constexpr int kPack = 16 / sizeof(T);
    if (dy.cols % kPack == 0 && packs<T>(options.z) && packs<T>(dy)) {
      silu_slope<T, kPack><<<blocks_for(dy.rows * dy.cols / kPack), kThreads, 0, stream_of(cuda)>>>(
          options.z, dy, made);
    } else {
      silu_slope<T, 1>
          <<<blocks_for(dy.rows * dy.cols), kThreads, 0, stream_of(cuda)>>>(options.z, dy, made);
    }
    dz = made;
  }
  if (gradients.dx.data != nullptr) {
    matmul(cuda, {.in = dtype_of<T>(),
                  .out = dtype_of<T>(),
                  .m = dz.rows,
                  .n = weight.inputs,
                  .k = weight.outputs,
                  .a = dz.data,
                  .a_stride = dz.stride,
                  .b = weight.forward.data(),
                  .b_stride = weight.outputs,
                  .transpose_b = true,
                  .d = gradients.dx.data,
                  .d_stride = gradients.dx.stride});
  }
  if (gradients.dw.data != nullptr) {
    matmul(cuda, {.in = dtype_of<T>(),
                  .out = dtype_of<A>(),
                  .m = weight.inputs,
                  .n = weight.outputs,
                  .k = x.rows,
                  .a = x.data,
                  .a_stride = x.stride,
                  .transpose_a = true,
                  .b = dz.data,
                  .b_stride = dz.stride,
                  .d = gradients.dw.data,
                  .d_stride = weight.outputs,
                  .c = gradients.dw.data,
                  .c_stride = weight.outputs,
                  .beta = 1});
  }
  if (gradients.db.data != nullptr) {
    const SectionScope section(cuda.sections, cuda.stream, Section::kElementwise);
    const View<A, 1> parts = scratch.take<A>(column_parts(dz.rows) * dz.cols);
    add_column_sums<T>(stream_of(cuda), dz, parts.data, gradients.db);
  }
  TGR_CUDA_CALL(cudaGetLastError());
}

template <class T>
std::size_t linear_workspace_bytes_cuda(std::int64_t outputs) {
  return matmul_workspace_bytes() + workspace_bytes_of<T>(outputs);
}

template <class T>
std::size_t linear_backward_workspace_bytes_cuda(std::int64_t outputs, std::int64_t rows) {
  return matmul_workspace_bytes() + workspace_bytes_of<T>(rows * outputs) +
         workspace_bytes_of<Accum<T>>(kColumnParts * outputs);
}

#define TGR_INSTANTIATE(T)                                                             \
  template void pack_weight<T>(Cuda, PackedWeight<T>::State&, View<const T, 2>);       \
  template void linear<T>(Cuda, Rows<const T>, const PackedWeight<T>::State&,          \
                          const LinearOptions<T>&, Rows<T>, Rows<T>);                  \
  template void linear_backward<T>(Cuda, Rows<const T>, const PackedWeight<T>::State&, \
                                   Rows<const T>, const LinearBackwardOptions<T>&,     \
                                   const LinearGradients<T>&);                         \
  template std::size_t linear_workspace_bytes_cuda<T>(std::int64_t);                   \
  template std::size_t linear_backward_workspace_bytes_cuda<T>(std::int64_t, std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace kernels
}  // namespace turbogr::ops
