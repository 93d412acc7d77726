// Most sums have one pick or a few: a warp makes one of them. A sum of very many would keep its
// warp busy alone, so the picks are cut into pieces of one length, a block adds up what a long sum
// has in its piece, and a last launch adds the pieces in order.
#include "turbogr/cuda/bisect.cuh"
#include "turbogr/cuda/columns.cuh"
#include "turbogr/ops/rows/weighted_rows_kernels.h"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

constexpr std::int64_t kPiece = 256;  // picks; a longer sum is a long one
constexpr unsigned kSumsABlock = 4;   // a warp each

// Adds picks [begin, end), in order, to eight columns.
template <class T, bool kVector>
__device__ void add_picks(const Rows<const T>& rows, const RowPicks& picks, std::int64_t begin,
                          std::int64_t end, std::int64_t c, Eight<float>& sum) {
#pragma unroll 4
  for (std::int64_t i = begin; i < end; ++i) {
    const float weight = picks.weights.data[i];
    const auto value = cuda::load8<kVector>(rows.row(picks.index.data[i]) + c, rows.cols - c);
#pragma unroll
    for (int k = 0; k < kColumns; ++k) sum[k] += weight * value[k];
  }
}

template <class T, class Out, bool kVector>
__global__ void short_sums_kernel(Rows<const T> rows, RowPicks picks, Rows<Out> out) {
  const std::int64_t p = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (p >= out.rows) return;
  const std::int64_t begin = picks.offsets.data[p];
  const std::int64_t end = picks.offsets.data[p + 1];
  if (end - begin > kPiece) return;
  if (end - begin == 1) {
    const float weight = picks.weights.data[begin];
    const T* from = rows.row(picks.index.data[begin]);
#pragma unroll 4
    for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < rows.cols; c += 32 * kColumns) {
      auto value = cuda::load8<kVector>(from + c, rows.cols - c);
#pragma unroll
      for (int k = 0; k < kColumns; ++k) value[k] *= weight;
      cuda::store8<kVector>(out.row(p) + c, rows.cols - c, value);
    }
    return;
  }
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < rows.cols; c += 32 * kColumns) {
    Eight<float> sum = {};
    add_picks<T, kVector>(rows, picks, begin, end, c, sum);
    cuda::store8<kVector>(out.row(p) + c, rows.cols - c, sum);
  }
}

// The sum that pick i is of: the last that starts at or before it, which has a pick.
__device__ std::int64_t sum_of(const RowPicks& picks, std::int64_t i) {
  return cuda::sequence_of(picks.offsets, i);
}
__device__ bool is_long(const RowPicks& picks, std::int64_t p) {
  return picks.offsets.data[p + 1] - picks.offsets.data[p] > kPiece;
}

// A piece has parts of two long sums at most: of one that began before it (its head), and of one
// that goes on after it (its tail).
template <class T, bool kVector>
__global__ void long_parts_kernel(Rows<const T> rows, RowPicks picks, float* heads, float* tails) {
  const std::int64_t begin = std::int64_t{blockIdx.x} * kPiece;
  const std::int64_t end = min(begin + kPiece, picks.index.shape[0]);
  const auto add = [&](std::int64_t from, std::int64_t to, float* parts) {
    for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < rows.cols;
         c += std::int64_t{blockDim.x} * kColumns) {
      Eight<float> sum = {};
      add_picks<T, kVector>(rows, picks, from, to, c, sum);
      cuda::store8<kVector>(parts + std::int64_t{blockIdx.x} * rows.cols + c, rows.cols - c, sum);
    }
  };
  const std::int64_t first = sum_of(picks, begin);
  if (is_long(picks, first) && picks.offsets.data[first] < begin) {
    add(begin, min(end, picks.offsets.data[first + 1]), heads);
  }
  const std::int64_t last = sum_of(picks, end - 1);
  if (is_long(picks, last) && picks.offsets.data[last] >= begin) {
    add(picks.offsets.data[last], end, tails);
  }
}

// The block of the piece in which a long sum begins.
template <class Out, bool kVector>
__global__ void long_sums_kernel(RowPicks picks, const float* heads, const float* tails,
                                 Rows<Out> out) {
  const std::int64_t begin = std::int64_t{blockIdx.x} * kPiece;
  const std::int64_t end = min(begin + kPiece, picks.index.shape[0]);
  const std::int64_t p = sum_of(picks, end - 1);
  if (!is_long(picks, p) || picks.offsets.data[p] < begin) return;
  const std::int64_t last = (picks.offsets.data[p + 1] - 1) / kPiece;
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < out.cols;
       c += std::int64_t{blockDim.x} * kColumns) {
    auto sum = cuda::load8<kVector>(tails + std::int64_t{blockIdx.x} * out.cols + c, out.cols - c);
#pragma unroll 4
    for (std::int64_t piece = std::int64_t{blockIdx.x} + 1; piece <= last; ++piece) {
      const auto part = cuda::load8<kVector>(heads + piece * out.cols + c, out.cols - c);
#pragma unroll
      for (int k = 0; k < kColumns; ++k) sum[k] += part[k];
    }
    cuda::store8<kVector>(out.row(p) + c, out.cols - c, sum);
  }
}

}  // namespace

template <class T, class Out>
void sum_weighted_rows(Cuda cuda, Rows<const T> rows, const RowPicks& picks, Rows<Out> out) {
  if (out.rows == 0 || out.cols == 0) return;
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  const std::int64_t count = picks.index.shape[0];
  const std::int64_t pieces = count > kPiece ? cuda::divide_up(count, kPiece) : 0;
  WorkspaceScope scope(cuda.workspace);
  float* const heads = scope.take<float, 2>({pieces, rows.cols}).data;
  float* const tails = scope.take<float, 2>({pieces, rows.cols}).data;
  cuda::choose_vector<T>(cuda::vectorable(rows) && cuda::vectorable(out), [&](auto vector) {
    const dim3 block(32, kSumsABlock);
    const auto blocks = static_cast<unsigned>(cuda::divide_up(out.rows, block.y));
    short_sums_kernel<T, Out, vector.value><<<blocks, block, 0, stream>>>(rows, picks, out);
    if (pieces == 0) return;
    const unsigned threads = cuda::team_block(std::min(rows.cols, cuda::kMaxWidth)).x;
    const auto grid = static_cast<unsigned>(pieces);
    long_parts_kernel<T, vector.value><<<grid, threads, 0, stream>>>(rows, picks, heads, tails);
    long_sums_kernel<Out, vector.value><<<grid, threads, 0, stream>>>(picks, heads, tails, out);
  });
  cuda::check_launch("sum_weighted_rows");
}

std::size_t sum_weighted_rows_workspace_bytes(Cuda, std::int64_t picks, std::int64_t width) {
  return 2 * workspace_bytes_of<float>(cuda::divide_up(picks, kPiece) * width);
}

template void sum_weighted_rows<float, float>(Cuda, Rows<const float>, const RowPicks&,
                                              Rows<float>);
template void sum_weighted_rows<bf16, bf16>(Cuda, Rows<const bf16>, const RowPicks&, Rows<bf16>);
template void sum_weighted_rows<bf16, float>(Cuda, Rows<const bf16>, const RowPicks&, Rows<float>);

}  // namespace turbogr::ops::kernels
