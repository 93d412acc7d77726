#include "turbogr/cuda/bisect.cuh"
#include "turbogr/ops/dense/dropout_mask_cuda.cuh"
#include "turbogr/ops/rows/combine_input_kernels.h"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

constexpr unsigned kTeams = 4;  // of a block of backward: each has every fourth sequence

// A team has kTeamRows neighbouring rows: those that are read are on their way while it looks for
// their sequence.
constexpr int kTeamRows = 4;

template <class T, bool kVector>
__global__ void combine_input_kernel(Jagged<const T> e, View<const T, 2> p, Rows<const T> extra,
                                     Accum<T> scale, DropoutDraw draw, Rows<T> x) {
  using A = Accum<T>;
  const std::int64_t first =
      (std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y) * std::int64_t{kTeamRows};
  if (first >= x.rows) return;
  const auto count = static_cast<int>(min(std::int64_t{kTeamRows}, x.rows - first));
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < x.cols;
       c += std::int64_t{blockDim.x} * kColumns) {
    const std::int64_t left = x.cols - c;
    Eight<A> values[kTeamRows];
#pragma unroll
    for (int j = 0; j < kTeamRows; ++j) {
      if (j < count) values[j] = cuda::load8<kVector>(e.values.row(first + j) + c, left);
    }
    std::int64_t b = cuda::sequence_of(e.offsets, first);
#pragma unroll
    for (int j = 0; j < kTeamRows; ++j) {
      if (j >= count) break;
      const std::int64_t r = first + j;
      while (b + 2 < e.offsets.shape[0] && e.offsets.data[b + 1] <= r) ++b;
      const std::int64_t position = r - e.offsets.data[b];
      if (position >= p.shape[0]) continue;  // the host has checked: only memory is kept safe here
      const auto place = cuda::load8<kVector>(p.data + position * x.cols + c, left);
      Eight<A> more = {};
      if (extra.data != nullptr) more = cuda::load8<kVector>(extra.row(r) + c, left);
      Eight<A>& value = values[j];
#pragma unroll
      for (int i = 0; i < kColumns; ++i) value[i] = scale * value[i] + place[i] + more[i];
      if (draw.threshold != 0) {
        const auto factors = dropout_factors<kVector, A>(draw.row(r), c);
#pragma unroll
        for (int i = 0; i < kColumns; ++i) value[i] *= factors[i];
      }
      cuda::store8<kVector>(x.row(r) + c, left, value);
    }
  }
}

// The gradient of one row's eight columns; returns d.
template <class T, bool kVector>
__device__ Eight<Accum<T>> row_gradient(Rows<const T> dx, std::int64_t r, std::int64_t c,
                                        Accum<T> scale, const DropoutDraw& draw, Rows<T> de,
                                        Rows<T> dextra) {
  using A = Accum<T>;
  const std::int64_t left = dx.cols - c;
  auto d = cuda::load8<kVector>(dx.row(r) + c, left);
  if (draw.threshold != 0) {
    const auto factors = dropout_factors<kVector, A>(draw.row(r), c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) d[i] *= factors[i];
  }
  Eight<A> scaled;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) scaled[i] = scale * d[i];
  cuda::store8<kVector>(de.row(r) + c, left, scaled);
  if (dextra.data != nullptr) cuda::store8<kVector>(dextra.row(r) + c, left, d);
  return d;
}

template <class T, bool kVector>
__global__ void rows_backward_kernel(Rows<const T> dx, Accum<T> scale, DropoutDraw draw, Rows<T> de,
                                     Rows<T> dextra) {
  const std::int64_t r = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= dx.rows) return;
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < dx.cols;
       c += std::int64_t{blockDim.x} * kColumns) {
    row_gradient<T, kVector>(dx, r, c, scale, draw, de, dextra);
  }
}

// A block has one position: it goes over the sequences that reach it, each team over every
// kTeams-th, and the teams' sums are added in order. Columns past the block's are other blocks'.
template <class T, bool kVector>
__global__ void __launch_bounds__(kTeams * 128)
    positions_backward_kernel(Jagged<const T> dx, Accum<T> scale, DropoutDraw draw, Rows<T> de,
                              Rows<T> dextra, View<Accum<T>, 2> dp) {
  using A = Accum<T>;
  extern __shared__ unsigned char memory[];
  A* sums = reinterpret_cast<A*>(memory);  // [kTeams, threads of a team, kColumns]
  const std::int64_t position = blockIdx.x;
  const std::int64_t c = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kColumns;
  const std::int64_t batch = dx.offsets.shape[0] - 1;
  Eight<A> sum = {};
  if (c < dx.values.cols) {
    for (std::int64_t b = threadIdx.y; b < batch; b += kTeams) {
      const std::int64_t r = dx.offsets.data[b] + position;
      if (r >= dx.offsets.data[b + 1]) continue;
      const auto d = row_gradient<T, kVector>(dx.values, r, c, scale, draw, de, dextra);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum[i] += d[i];
    }
  }
  A* own = sums + (threadIdx.y * blockDim.x + threadIdx.x) * kColumns;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) own[i] = sum[i];
  __syncthreads();
  if (threadIdx.y != 0 || c >= dx.values.cols) return;
  for (unsigned team = 1; team < kTeams; ++team) {
    const A* other = sums + (team * blockDim.x + threadIdx.x) * kColumns;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum[i] += other[i];
  }
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    if (c + i < dx.values.cols) dp.data[position * dx.values.cols + c + i] += sum[i];
  }
}

template <class T>
bool empty_or_vectorable(Rows<T> rows) {
  return rows.data == nullptr || cuda::vectorable(rows);
}

}  // namespace

template <class T>
void combine_input(Cuda cuda, Jagged<const T> e, View<const T, 2> p,
                   const CombineInputOptions<T>& options, Rows<T> x) {
  if (x.rows == 0 || x.cols == 0) return;
  const dim3 block = cuda::team_block(std::min(x.cols, cuda::kMaxWidth));
  const auto blocks = static_cast<unsigned>(cuda::divide_up(x.rows, block.y * kTeamRows));
  const bool vectors = cuda::vectorable(e.values) && cuda::vectorable(p.data) &&
                       empty_or_vectorable(options.extra) && cuda::vectorable(x);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    combine_input_kernel<T, vector.value><<<blocks, block, 0, cuda::stream_of(cuda.stream)>>>(
        e, p, options.extra, static_cast<Accum<T>>(options.scale), DropoutDraw(options.dropout), x);
  });
  cuda::check_launch("combine_input");
}

template <class T>
void combine_input_backward(Cuda cuda, Jagged<const T> dx, const CombineInputOptions<T>& options,
                            const CombineInputGradients<T>& gradients) {
  using A = Accum<T>;
  const std::int64_t cols = dx.width();
  if (dx.tokens() == 0 || cols == 0) return;
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  const auto scale = static_cast<A>(options.scale);
  const DropoutDraw draw(options.dropout);
  const bool vectors = cuda::vectorable(dx.values) && cuda::vectorable(gradients.de) &&
                       empty_or_vectorable(gradients.dextra);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    if (gradients.dp.data == nullptr) {
      const dim3 block = cuda::team_block(std::min(cols, cuda::kMaxWidth));
      const auto blocks = static_cast<unsigned>(cuda::divide_up(dx.tokens(), block.y));
      rows_backward_kernel<T, vector.value>
          <<<blocks, block, 0, stream>>>(dx.values, scale, draw, gradients.de, gradients.dextra);
      return;
    }
    const dim3 block(cuda::team_block(std::min<std::int64_t>(cols, 1024)).x, kTeams);
    const dim3 blocks(static_cast<unsigned>(gradients.dp.shape[0]),
                      static_cast<unsigned>(cuda::divide_up(cols, block.x * kColumns)));
    const std::size_t shared = kTeams * block.x * kColumns * sizeof(A);
    positions_backward_kernel<T, vector.value><<<blocks, block, shared, stream>>>(
        dx, scale, draw, gradients.de, gradients.dextra, gradients.dp);
  });
  cuda::check_launch("combine_input_backward");
}

#define TGR_INSTANTIATE(T)                                                                      \
  template void combine_input<T>(Cuda, Jagged<const T>, View<const T, 2>,                       \
                                 const CombineInputOptions<T>&, Rows<T>);                       \
  template void combine_input_backward<T>(Cuda, Jagged<const T>, const CombineInputOptions<T>&, \
                                          const CombineInputGradients<T>&);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
