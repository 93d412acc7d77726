// Sums over rows for parameter gradients: every block of a kernel leaves one row of partial sums,
// and these are added in order. The number of blocks depends on the number of rows alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "turbogr/core/view.h"
#include "turbogr/cuda/columns.cuh"

namespace turbogr::ops {

inline constexpr std::int64_t kColumnSumBlocks = 1056;  // eight for each SM of a Hopper GPU

inline std::int64_t column_sum_blocks(std::int64_t rows, std::int64_t rows_a_block) {
  return std::min(kColumnSumBlocks, cuda::divide_up(rows, rows_a_block));
}

// total += the sum of `count` rows of parts, as 32 interleaved runs that are then added in order.
template <class A>
__global__ void add_parts_kernel(const A* parts, std::int64_t count, std::int64_t cols, A* total) {
  __shared__ A runs[32][33];
  const std::int64_t column = std::int64_t{blockIdx.x} * 32 + threadIdx.x;
  A sum = 0;
  if (column < cols) {
#pragma unroll 4
    for (std::int64_t part = threadIdx.y; part < count; part += 32)
      sum += parts[part * cols + column];
  }
  runs[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= cols) return;
  sum = 0;
  for (int run = 0; run < 32; ++run) sum += runs[run][threadIdx.x];
  total[column] += sum;
}

template <class A>
void add_parts(cudaStream_t stream, const A* parts, std::int64_t count, View<A, 1> total) {
  const auto blocks = static_cast<unsigned>(cuda::divide_up(total.shape[0], 32));
  add_parts_kernel<A>
      <<<blocks, dim3(32, 32), 0, stream>>>(parts, count, total.shape[0], total.data);
}

// Blocks of kTeams teams, each with every so-many-th row and four rows on their way; a team's
// columns are those of blockIdx.y.
inline constexpr std::int64_t kColumnTeams = 4;
inline constexpr std::int64_t kColumnParts = 396;  // three for each SM of a Hopper GPU

template <class T, bool kVector>
__global__ void __launch_bounds__(kColumnTeams * 128)
    column_parts_kernel(Rows<const T> x, Accum<T>* parts) {
  using A = Accum<T>;
  constexpr int kAhead = 4;
  __shared__ A shared[kColumnTeams][128 * cuda::kColumns];
  const std::int64_t c = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * cuda::kColumns;
  const std::int64_t left = x.cols - c;
  const std::int64_t step = std::int64_t{gridDim.x} * kColumnTeams;
  cuda::Eight<A> sum = {};
  if (left > 0) {
    std::int64_t r = std::int64_t{blockIdx.x} * kColumnTeams + threadIdx.y;
    for (; r + (kAhead - 1) * step < x.rows; r += kAhead * step) {
      cuda::Eight<A> rows[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j)
        rows[j] = cuda::load8<kVector>(x.row(r + j * step) + c, left);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
#pragma unroll
        for (int i = 0; i < cuda::kColumns; ++i) sum[i] += rows[j][i];
      }
    }
    for (; r < x.rows; r += step) {
      const auto row = cuda::load8<kVector>(x.row(r) + c, left);
#pragma unroll
      for (int i = 0; i < cuda::kColumns; ++i) sum[i] += row[i];
    }
  }
#pragma unroll
  for (int i = 0; i < cuda::kColumns; ++i) {
    shared[threadIdx.y][i * 128 + threadIdx.x] = sum[i];
  }
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (int i = 0; i < cuda::kColumns && i < left; ++i) {
    A total = 0;
    for (int team = 0; team < kColumnTeams; ++team) total += shared[team][i * 128 + threadIdx.x];
    parts[std::int64_t{blockIdx.x} * x.cols + c + i] = total;
  }
}

inline std::int64_t column_parts(std::int64_t rows) {
  return std::min(kColumnParts, cuda::divide_up(rows, kColumnTeams));
}

// total += the column sums of x; parts [column_parts(rows), cols].
template <class T>
void add_column_sums(cudaStream_t stream, Rows<const T> x, Accum<T>* parts,
                     View<Accum<T>, 1> total) {
  if (x.rows == 0 || x.cols == 0) return;
  const std::int64_t count = column_parts(x.rows);
  const dim3 block(cuda::team_block(std::min<std::int64_t>(x.cols, 1024)).x, kColumnTeams);
  const dim3 blocks(static_cast<unsigned>(count),
                    static_cast<unsigned>(cuda::divide_up(x.cols, block.x * cuda::kColumns)));
  cuda::choose_vector<T>(cuda::vectorable(x), [&](auto vector) {
    column_parts_kernel<T, vector.value><<<blocks, block, 0, stream>>>(x, parts);
  });
  add_parts<Accum<T>>(stream, parts, count, total);
}

}  // namespace turbogr::ops
