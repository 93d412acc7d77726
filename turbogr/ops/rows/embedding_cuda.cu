#include <algorithm>
#include <bit>

#include "turbogr/cuda/bisect.cuh"
#include "turbogr/cuda/half.cuh"
#include "turbogr/ops/rows/embedding_kernels.h"
#include "turbogr/ops/rows/segment_sum_cuda.cuh"
#include "turbogr/ops/rows/sort_cuda.h"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

constexpr unsigned kThreads = 256;

unsigned blocks_of(std::int64_t count) {
  return static_cast<unsigned>(cuda::divide_up(count, kThreads));
}
__device__ std::int64_t thread_index() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

__global__ void number_kernel(const std::int64_t* ids, std::int64_t count, std::uint32_t* index,
                              unsigned long long* largest) {
  const std::int64_t i = thread_index();
  unsigned long long own = 0;
  if (i < count) {
    index[i] = static_cast<std::uint32_t>(i);
    own = static_cast<unsigned long long>(ids[i]);
  }
  for (int lane = 16; lane > 0; lane /= 2) {
    own = max(own, __shfl_xor_sync(0xffffffffu, own, lane));
  }
  if (threadIdx.x % 32 == 0) atomicMax(largest, own);
}

__global__ void mark_starts_kernel(const std::uint64_t* keys, std::int64_t count,
                                   std::int32_t* starts) {
  const std::int64_t i = thread_index();
  if (i < count) starts[i] = i > 0 && keys[i] != keys[i - 1];
}

__global__ void write_groups_kernel(const std::uint64_t* keys, const std::int32_t* group,
                                    std::int64_t count, DedupOutput output) {
  const std::int64_t i = thread_index();
  if (i >= count) return;
  const std::int32_t g = group[i];
  output.inverse.data[output.positions.data[i]] = g;
  if (i == 0 || group[i - 1] != g) {
    output.unique.data[g] = static_cast<std::int64_t>(keys[i]);
    output.offsets.data[g] = i;
  }
  if (i + 1 == count) output.offsets.data[g + 1] = count;
}

// Scratch of dedup_ids.
struct DedupScratch {
  std::uint64_t* keys;
  std::uint32_t* index;
  std::int32_t* group;
  unsigned long long* largest;
  unsigned char* temporary;
  std::size_t temporary_bytes;

  static std::size_t temporary_of(std::int64_t count) {
    return std::max(sort_pairs_bytes<std::uint64_t>(count), running_sum_bytes(count));
  }
  DedupScratch(WorkspaceScope& scope, std::int64_t count)
      : keys(scope.take<std::uint64_t>(count).data),
        index(scope.take<std::uint32_t>(count).data),
        group(scope.take<std::int32_t>(count).data),
        largest(scope.take<unsigned long long>(1).data),
        temporary_bytes(temporary_of(count)) {
    temporary = scope.take<unsigned char>(static_cast<std::int64_t>(temporary_bytes)).data;
  }
};

// kWarps rows a block, a warp each: the rows of a table are far apart, so many small readers.
template <class T, class Out, class Index, bool kVector>
__global__ void gather_kernel(Rows<const T> table, const Index* ids, Rows<Out> out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (i >= out.rows) return;
  const auto id = static_cast<std::int64_t>(ids[i]);
  if (id < 0 || id >= table.rows) return;
  const T* from = table.row(id);
  Out* to = out.row(i);
#pragma unroll 4
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < out.cols; c += 32 * kColumns) {
    const auto value = cuda::load_row8<kVector, Accum<T>>(from + c, out.cols - c);
    cuda::store8<kVector>(to + c, out.cols - c, value);
  }
}

// A warp a row.
template <class T, bool kVector>
__global__ void place_kernel(Rows<const T> rows, const std::int32_t* places, Rows<T> out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (i >= rows.rows) return;
  const std::int64_t place = places[i];
  if (place < 0 || place >= out.rows) return;
#pragma unroll 4
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < rows.cols; c += 32 * kColumns) {
    const auto value = cuda::load8<kVector>(rows.row(i) + c, rows.cols - c);
    cuda::store8<kVector>(out.row(place) + c, rows.cols - c, value);
  }
}

__global__ void group_keys_kernel(Offsets offsets, std::int64_t count, std::uint32_t* keys) {
  const std::int64_t i = thread_index();
  if (i >= count) return;
  keys[i] = static_cast<std::uint32_t>(cuda::sequence_of(offsets, i));
}

template <class T, bool kVector>
struct PositionRows {
  Rows<const T> rows;
  const std::int32_t* positions;

  using Ref = std::int32_t;
  __device__ Ref refer(std::int64_t entry) const { return positions[entry]; }
  __device__ Eight<Accum<T>> load(Ref position, std::int64_t c) const {
    return cuda::load8<kVector>(rows.row(position) + c, rows.cols - c);
  }
};

template <class A, bool kVector>
struct StoreSums {
  const std::int64_t* unique;  // null: row u is group u's
  Rows<A> sums;

  using Early = Eight<A>;  // what is added to
  __device__ std::uint32_t place(std::uint32_t group) const {
    if (unique == nullptr) return group;
    const std::int64_t row = unique[group];
    return row < 0 || row >= sums.rows ? kNoSegment : static_cast<std::uint32_t>(row);
  }
  __device__ Early early(std::uint32_t row, std::int64_t c) const {
    if (unique == nullptr || row >= sums.rows || c >= sums.cols) return {};
    return cuda::load8<kVector>(static_cast<const A*>(sums.row(row)) + c, sums.cols - c);
  }
  __device__ void operator()(std::uint32_t row, std::int64_t c, const Early& before, Eight<A>& sum,
                             A*) const {
    if (row >= sums.rows || c >= sums.cols) return;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum[i] += before[i];
    cuda::store8<kVector>(sums.row(row) + c, sums.cols - c, sum);
  }
};

}  // namespace

std::int64_t dedup_ids(Cuda cuda, View<const std::int64_t, 1> ids, const DedupOutput& output) {
  const std::int64_t count = ids.shape[0];
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  if (count == 0) {
    TGR_CUDA_CALL(cudaMemsetAsync(output.offsets.data, 0, sizeof(std::int64_t), stream));
    return 0;
  }
  WorkspaceScope scope(cuda.workspace);
  const DedupScratch s(scope, count);
  const unsigned blocks = blocks_of(count);
  TGR_CUDA_CALL(cudaMemsetAsync(s.largest, 0, sizeof *s.largest, stream));
  number_kernel<<<blocks, kThreads, 0, stream>>>(ids.data, count, s.index, s.largest);
  std::uint64_t largest = 0;
  TGR_CUDA_CALL(
      cudaMemcpyAsync(&largest, s.largest, sizeof largest, cudaMemcpyDeviceToHost, stream));
  TGR_CUDA_CALL(cudaStreamSynchronize(stream));
  TGR_CHECK(largest < (std::uint64_t{1} << 63), "dedup_ids: id ",
            static_cast<std::int64_t>(largest), "; ids must be at least 0 and below 2^63 - 1");
  sort_pairs<std::uint64_t>(stream, reinterpret_cast<const std::uint64_t*>(ids.data), s.keys,
                            s.index, reinterpret_cast<std::uint32_t*>(output.positions.data), count,
                            std::max(1, static_cast<int>(std::bit_width(largest))), s.temporary,
                            s.temporary_bytes);
  mark_starts_kernel<<<blocks, kThreads, 0, stream>>>(s.keys, count, s.group);
  running_sum(stream, s.group, count, s.temporary, s.temporary_bytes);
  write_groups_kernel<<<blocks, kThreads, 0, stream>>>(s.keys, s.group, count, output);
  cuda::check_launch("dedup_ids");
  std::int32_t last = 0;
  TGR_CUDA_CALL(
      cudaMemcpyAsync(&last, s.group + count - 1, sizeof last, cudaMemcpyDeviceToHost, stream));
  TGR_CUDA_CALL(cudaStreamSynchronize(stream));
  return last + 1;
}

std::size_t dedup_ids_workspace_bytes(Cuda, std::int64_t num_ids) {
  return workspace_bytes_of<std::uint64_t>(num_ids) + workspace_bytes_of<std::uint32_t>(num_ids) +
         workspace_bytes_of<std::int32_t>(num_ids) + workspace_bytes_of<unsigned long long>(1) +
         workspace_bytes_of<unsigned char>(
             static_cast<std::int64_t>(DedupScratch::temporary_of(num_ids)));
}

template <class T, class Out, class Index>
void gather_rows(Cuda cuda, Rows<const T> table, View<const Index, 1> ids, Rows<Out> out) {
  if (out.rows == 0 || out.cols == 0) return;
  const dim3 block(32, 4);
  const auto blocks = static_cast<unsigned>(cuda::divide_up(out.rows, block.y));
  const bool vectors = cuda::vectorable(table) && cuda::vectorable(out);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    gather_kernel<T, Out, Index, vector.value>
        <<<blocks, block, 0, cuda::stream_of(cuda.stream)>>>(table, ids.data, out);
  });
  cuda::check_launch("gather_rows");
}

template <class T>
void sum_groups(Cuda cuda, Rows<const T> drows, const IdGroups& groups, bool scatter,
                Rows<Accum<T>> sums) {
  using A = Accum<T>;
  cuda::check_width(scatter ? "scatter_add_rows" : "sum_duplicate_rows", drows.cols);
  const std::int64_t count = drows.rows;
  if (count == 0 || drows.cols == 0) return;
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  WorkspaceScope scope(cuda.workspace);
  std::uint32_t* keys = scope.take<std::uint32_t>(count).data;
  group_keys_kernel<<<blocks_of(count), kThreads, 0, stream>>>(groups.offsets, count, keys);
  cuda::choose_vector<T>(cuda::vectorable(drows) && cuda::vectorable(sums), [&](auto vector) {
    const StoreSums<A, vector.value> store = {scatter ? groups.unique.data : nullptr, sums};
    const PositionRows<T, vector.value> source = {drows, groups.positions.data};
    segment_sum<A>(stream, cuda.workspace, keys, count, drows.cols, source, store);
  });
  cuda::check_launch(scatter ? "scatter_add_rows" : "sum_duplicate_rows");
}

template <class T>
std::size_t sum_groups_workspace_bytes(Cuda, std::int64_t rows, std::int64_t width) {
  return workspace_bytes_of<std::uint32_t>(rows) + segment_workspace_bytes<Accum<T>>(rows, width);
}

#define TGR_INSTANTIATE(T)                                                                 \
  template void sum_groups<T>(Cuda, Rows<const T>, const IdGroups&, bool, Rows<Accum<T>>); \
  template std::size_t sum_groups_workspace_bytes<T>(Cuda, std::int64_t, std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

#define TGR_INSTANTIATE(T, Out)                                                            \
  template void gather_rows<T, Out, std::int64_t>(Cuda, Rows<const T>,                     \
                                                  View<const std::int64_t, 1>, Rows<Out>); \
  template void gather_rows<T, Out, std::int32_t>(Cuda, Rows<const T>,                     \
                                                  View<const std::int32_t, 1>, Rows<Out>);
TGR_INSTANTIATE(double, double)
TGR_INSTANTIATE(float, float)
TGR_INSTANTIATE(bf16, bf16)
TGR_INSTANTIATE(float, bf16)
TGR_INSTANTIATE(bf16, float)
TGR_INSTANTIATE(f16, float)
TGR_INSTANTIATE(f16, bf16)
#undef TGR_INSTANTIATE

template <class T>
void place_rows(Cuda cuda, Rows<const T> rows, View<const std::int32_t, 1> places, Rows<T> out) {
  if (rows.rows == 0 || rows.cols == 0) return;
  const dim3 block(32, 4);
  const auto blocks = static_cast<unsigned>(cuda::divide_up(rows.rows, block.y));
  const bool vectors = cuda::vectorable(rows) && cuda::vectorable(out);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    place_kernel<T, vector.value>
        <<<blocks, block, 0, cuda::stream_of(cuda.stream)>>>(rows, places.data, out);
  });
  cuda::check_launch("place_rows");
}

template void place_rows<float>(Cuda, Rows<const float>, View<const std::int32_t, 1>, Rows<float>);
template void place_rows<bf16>(Cuda, Rows<const bf16>, View<const std::int32_t, 1>, Rows<bf16>);

}  // namespace turbogr::ops::kernels
