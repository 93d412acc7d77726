// Kernels that look at every element of rows once: a team a row, eight columns a thread.
//
//   __global__ void kernel(Rows<const T> x, Rows<T> y) {
//     over_columns(x.rows, x.cols, [&](std::int64_t r, std::int64_t c) { ... eight from c on ...
//     });
//   }
//   const RowLaunch l(cuda, x.rows, x.cols);
//   kernel<<<l.blocks, l.block, 0, l.stream>>>(x, y);
#pragma once

#include "turbogr/core/context.h"
#include "turbogr/cuda/columns.cuh"

namespace turbogr::cuda {

// Calls body(row, column) for a thread's eight columns of every row.
template <class Body>
__device__ void over_columns(std::int64_t rows, std::int64_t cols, Body&& body) {
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < cols;
       c += std::int64_t{blockDim.x} * kColumns) {
    body(row, c);
  }
}

struct RowLaunch {
  dim3 block;
  unsigned blocks;
  cudaStream_t stream;

  RowLaunch(Cuda cuda, std::int64_t rows, std::int64_t cols)
      : block(team_block(std::min(cols, kMaxWidth), 256)),
        blocks(static_cast<unsigned>(divide_up(rows, block.y))),
        stream(stream_of(cuda.stream)) {}
};

}  // namespace turbogr::cuda
