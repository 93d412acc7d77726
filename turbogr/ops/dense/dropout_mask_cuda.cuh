// The mask of dropout_mask.h for a thread's eight columns.
#pragma once

#include "turbogr/cuda/columns.cuh"
#include "turbogr/ops/dense/dropout_mask.h"

namespace turbogr::ops {

// Factors of columns [column, column + 8), a multiple of eight with kVector.
template <bool kVector, class A>
__device__ cuda::Eight<A> dropout_factors(const DropoutRow& row, std::int64_t column) {
  cuda::Eight<A> out;
  if constexpr (kVector) {
    const auto block =
        philox(row.seed, row.row_key, (row.site << 24) | static_cast<std::uint64_t>(column / 8));
    const auto kept = static_cast<A>(row.scale);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t word = block[static_cast<std::size_t>(i)];
      out[2 * i] = (word & 0xffffu) < row.threshold ? A(0) : kept;
      out[2 * i + 1] = (word >> 16) < row.threshold ? A(0) : kept;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = static_cast<A>(row.factor(column + i));
  }
  return out;
}

}  // namespace turbogr::ops
