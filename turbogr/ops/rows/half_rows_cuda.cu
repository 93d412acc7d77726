#include "turbogr/cuda/half.cuh"
#include "turbogr/ops/rows/half_rows_kernels.h"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

constexpr unsigned kWarps = 4;  // rows of a block, a warp each

unsigned blocks_of(std::int64_t rows) {
  return static_cast<unsigned>(cuda::divide_up(rows, kWarps));
}

// Reads a row twice: for its largest magnitude, then, out of the cache, to round it.
template <bool kVector>
__global__ void to_half_kernel(Rows<const float> table, const std::int64_t* ids, std::int64_t count,
                               bool in_place, Rows<f16> out, float* scale) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (i >= count) return;
  const std::int64_t id = ids[i];
  if (id < 0 || id >= table.rows) return;
  const std::int64_t to = in_place ? id : i;
  const float* row = table.row(id);
  float largest = 0;
#pragma unroll 4
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < table.cols; c += 32 * kColumns) {
    const auto x = cuda::load8<kVector>(row + c, table.cols - c);
#pragma unroll
    for (int k = 0; k < kColumns; ++k) largest = fmaxf(largest, fabsf(x[k]));
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lane));
  }
  const float inverse = 1.0f / largest;
  const bool zero = !isfinite(inverse);  // as on the CPU: such a row is zero
  if (threadIdx.x == 0) scale[to] = zero ? 0.0f : largest;
#pragma unroll 4
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < table.cols; c += 32 * kColumns) {
    auto x = cuda::load8<kVector>(row + c, table.cols - c);
#pragma unroll
    for (int k = 0; k < kColumns; ++k) x[k] *= zero ? 0.0f : inverse;
    cuda::store_half8<kVector>(out.row(to) + c, table.cols - c, x);
  }
}

template <bool kVector>
__global__ void copy_half_kernel(Rows<const f16> table, const float* table_scale,
                                 const std::int64_t* ids, std::int64_t count, Rows<f16> out,
                                 float* scale) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (i >= count) return;
  const std::int64_t id = ids[i];
  if (id < 0 || id >= table.rows) return;
  if (threadIdx.x == 0) scale[i] = table_scale[id];
  const f16* from = table.row(id);
  f16* to = out.row(i);
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < table.cols; c += 32 * kColumns) {
    if constexpr (kVector) {
      *reinterpret_cast<uint4*>(to + c) = *reinterpret_cast<const uint4*>(from + c);
    } else {
      for (std::int64_t k = c; k < min(c + kColumns, table.cols); ++k) to[k] = from[k];
    }
  }
}

}  // namespace

void to_half_rows(Cuda cuda, Rows<const float> table, View<const std::int64_t, 1> ids,
                  bool in_place, const HalfRowsOut& out) {
  const std::int64_t count = ids.shape[0];
  if (count == 0 || table.cols == 0) return;
  const bool vectors = cuda::vectorable(table) && cuda::vectorable(out.values);
  cuda::choose_vector<float>(vectors, [&](auto vector) {
    to_half_kernel<vector.value>
        <<<blocks_of(count), dim3(32, kWarps), 0, cuda::stream_of(cuda.stream)>>>(
            table, ids.data, count, in_place, out.values, out.scale.data);
  });
  cuda::check_launch("gather_half_rows");
}

void copy_half_rows(Cuda cuda, const HalfRows& table, View<const std::int64_t, 1> ids,
                    const HalfRowsOut& out) {
  const std::int64_t count = ids.shape[0];
  if (count == 0 || table.values.cols == 0) return;
  const bool vectors = cuda::vectorable(table.values) && cuda::vectorable(out.values);
  cuda::choose_vector<float>(vectors, [&](auto vector) {
    copy_half_kernel<vector.value>
        <<<blocks_of(count), dim3(32, kWarps), 0, cuda::stream_of(cuda.stream)>>>(
            table.values, table.scale.data, ids.data, count, out.values, out.scale.data);
  });
  cuda::check_launch("gather_half_rows");
}

}  // namespace turbogr::ops::kernels
