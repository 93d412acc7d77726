#include "turbogr/ops/dense/dropout_kernels.h"
#include "turbogr/ops/dense/dropout_mask_cuda.cuh"

namespace turbogr::ops::kernels {
namespace {

template <class T, bool kVector>
__global__ void dropout_kernel(Rows<const T> x, DropoutDraw draw, Rows<T> y) {
  const std::int64_t column = std::int64_t{threadIdx.x} * cuda::kColumns;
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= x.rows || column >= x.cols) return;
  const DropoutRow drop = draw.row(row);
  for (std::int64_t c = column; c < x.cols; c += std::int64_t{blockDim.x} * cuda::kColumns) {
    auto value = cuda::load8<kVector>(x.row(row) + c, x.cols - c);
    const auto factors = dropout_factors<kVector, Accum<T>>(drop, c);
#pragma unroll
    for (int i = 0; i < cuda::kColumns; ++i) value[i] *= factors[i];
    cuda::store8<kVector>(y.row(row) + c, x.cols - c, value);
  }
}

}  // namespace

template <class T>
void dropout(Cuda cuda, Rows<const T> x, const DropoutOptions& options, Rows<T> y) {
  if (x.rows == 0 || x.cols == 0) return;
  const dim3 block = cuda::team_block(std::min(x.cols, cuda::kMaxWidth));
  const auto blocks = static_cast<unsigned>(cuda::divide_up(x.rows, block.y));
  const DropoutDraw draw(options);
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  cuda::choose_vector<T>(cuda::vectorable(x) && cuda::vectorable(y), [&](auto vector) {
    dropout_kernel<T, vector.value><<<blocks, block, 0, stream>>>(x, draw, y);
  });
  cuda::check_launch("dropout");
}

#define TGR_INSTANTIATE(T) \
  template void dropout<T>(Cuda, Rows<const T>, const DropoutOptions&, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
