#include <algorithm>

#include "turbogr/cuda/bisect.cuh"
#include "turbogr/cuda/columns.cuh"
#include "turbogr/ops/dense/column_sums_cuda.cuh"
#include "turbogr/ops/rows/action_bits_kernels.h"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

constexpr unsigned kThreads = 256;

__device__ bool is_target(const EventSequences& s, std::int64_t event) {
  const std::int64_t c = s.num_prefix;
  const std::int64_t b =
      cuda::last_start(s.batch(), event, [&](std::int64_t i) { return s.offsets.data[i] - i * c; });
  const EventSequence at = event_sequence(s, b);
  return event - at.event >= at.history;
}

// Rows are narrow, so a thread has eight columns of any row.
template <class T, bool kVector>
__global__ void action_bits_kernel(EventSequences sequences, ActionBlocks<const Accum<T>> blocks,
                                   const std::uint32_t* masks, std::int64_t groups, Rows<T> rows) {
  using A = Accum<T>;
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t event = i / groups;
  if (event >= rows.rows) return;
  const std::int64_t first = i % groups * kColumns;
  const std::int64_t width = blocks.table.shape[1];
  const bool target = is_target(sequences, event);
  const std::uint32_t mask = target ? 0 : masks[event];
  Eight<A> value = {};
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const std::int64_t c = first + k;
    if (c >= rows.cols) break;
    if (target) {
      value[k] = blocks.target.data[c];
    } else if ((mask >> (c / width) & 1u) != 0) {
      value[k] = blocks.table.data[c];
    }
  }
  cuda::store8<kVector>(rows.row(event) + first, rows.cols - first, value);
}

// A thread has a column and every so-many-th event; a block leaves a row of sums of each.
template <class T>
__global__ void __launch_bounds__(kThreads)
    action_parts_kernel(EventSequences sequences, const std::uint32_t* masks, Rows<const T> drows,
                        std::int64_t width, Accum<T>* table_parts, Accum<T>* target_parts) {
  using A = Accum<T>;
  __shared__ A table_sums[kThreads], target_sums[kThreads];
  const std::int64_t c = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  A table = 0, target = 0;
  if (c < drows.cols) {
    for (std::int64_t event = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
         event < drows.rows; event += std::int64_t{gridDim.x} * blockDim.y) {
      const A d = convert<A>(drows(event, c));
      if (is_target(sequences, event)) {
        target += d;
      } else if ((masks[event] >> (c / width) & 1u) != 0) {
        table += d;
      }
    }
  }
  const unsigned own = threadIdx.y * blockDim.x + threadIdx.x;
  table_sums[own] = table;
  target_sums[own] = target;
  __syncthreads();
  if (threadIdx.y != 0 || c >= drows.cols) return;
  for (unsigned y = 1; y < blockDim.y; ++y) {
    table += table_sums[y * blockDim.x + threadIdx.x];
    target += target_sums[y * blockDim.x + threadIdx.x];
  }
  table_parts[std::int64_t{blockIdx.x} * drows.cols + c] = table;
  target_parts[std::int64_t{blockIdx.x} * drows.cols + c] = target;
}

}  // namespace

template <class T>
void action_bits(Cuda cuda, const EventSequences& sequences,
                 const ActionBlocks<const Accum<T>>& blocks, View<const std::uint32_t, 1> masks,
                 Rows<T> rows) {
  if (rows.rows == 0 || rows.cols == 0) return;
  const std::int64_t groups = cuda::divide_up(rows.cols, kColumns);
  const auto grid = static_cast<unsigned>(cuda::divide_up(rows.rows * groups, kThreads));
  cuda::choose_vector<T>(cuda::vectorable(rows), [&](auto vector) {
    action_bits_kernel<T, vector.value><<<grid, kThreads, 0, cuda::stream_of(cuda.stream)>>>(
        sequences, blocks, masks.data, groups, rows);
  });
  cuda::check_launch("action_bits");
}

template <class T>
void action_bits_backward(Cuda cuda, const EventSequences& sequences,
                          View<const std::uint32_t, 1> masks, Rows<const T> drows,
                          const ActionBlocks<Accum<T>>& dblocks) {
  using A = Accum<T>;
  if (drows.rows == 0 || drows.cols == 0) return;
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  const auto across =
      static_cast<unsigned>(std::min<std::int64_t>(cuda::divide_up(drows.cols, 32) * 32, kThreads));
  const dim3 block(across, kThreads / across);
  const std::int64_t parts = column_sum_blocks(drows.rows, block.y);
  WorkspaceScope scope(cuda.workspace);
  A* const table_parts = scope.take<A, 2>({parts, drows.cols}).data;
  A* const target_parts = scope.take<A, 2>({parts, drows.cols}).data;
  const dim3 grid(static_cast<unsigned>(parts),
                  static_cast<unsigned>(cuda::divide_up(drows.cols, across)));
  action_parts_kernel<T><<<grid, block, 0, stream>>>(
      sequences, masks.data, drows, dblocks.table.shape[1], table_parts, target_parts);
  add_parts<A>(stream, table_parts, parts, {dblocks.table.data, {drows.cols}});
  add_parts<A>(stream, target_parts, parts, dblocks.target);
  cuda::check_launch("action_bits_backward");
}

template <class T>
std::size_t action_bits_workspace_bytes(Cuda, std::int64_t cols) {
  return 2 * workspace_bytes_of<Accum<T>>(kColumnSumBlocks * cols);
}

#define TGR_INSTANTIATE(T)                                                                         \
  template void action_bits<T>(Cuda, const EventSequences&, const ActionBlocks<const Accum<T>>&,   \
                               View<const std::uint32_t, 1>, Rows<T>);                             \
  template void action_bits_backward<T>(Cuda, const EventSequences&, View<const std::uint32_t, 1>, \
                                        Rows<const T>, const ActionBlocks<Accum<T>>&);             \
  template std::size_t action_bits_workspace_bytes<T>(Cuda, std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
