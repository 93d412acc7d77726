#include "turbogr/cuda/half.cuh"
#include "turbogr/ops/dense/column_sums_cuda.cuh"
#include "turbogr/ops/dense/convert_kernels.h"
#include "turbogr/ops/dense/sum_cuda.cuh"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

constexpr unsigned kThreads = 256;
constexpr std::int64_t kActionRows = 256;  // tokens of one part of the actions' gradient

unsigned blocks_of(std::int64_t count, std::int64_t a_block) {
  return static_cast<unsigned>(cuda::divide_up(count, a_block));
}

// Eight values a thread; f64 on either side goes one by one.
template <class To, class From, bool kVector>
__global__ void convert_kernel(const From* from, std::int64_t count, To* to) {
  const std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kColumns;
  if (i >= count) return;
  if constexpr (kVector) {
    if (i + kColumns <= count) {
      cuda::store8<true>(to + i, kColumns, cuda::load_row8<true, Accum<From>>(from + i, kColumns));
      return;
    }
  }
  for (std::int64_t j = i; j < min(i + kColumns, count); ++j) {
    to[j] = convert<To>(cuda::load_row8<false, Accum<From>>(from + j, 1)[0]);
  }
}

template <class T>
__global__ void fill_kernel(T value, std::int64_t count, T* to) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) to[i] = value;
}

template <class T>
__global__ void sum_kernel(const T* values, std::int64_t count, double* parts) {
  const std::int64_t begin = std::int64_t{blockIdx.x} * kSumPiece;
  const std::int64_t end = min(begin + kSumPiece, count);
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kSumThreads) {
    sum += convert<Accum<T>>(values[i]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// A warp a row.
template <class T, bool kVector>
__global__ void inverse_norms_kernel(Rows<const T> x, Accum<T> eps, Accum<T>* inverse) {
  using A = Accum<T>;
  const std::int64_t r = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= x.rows) return;
  A squares = 0;
#pragma unroll 4
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < x.cols; c += 32 * kColumns) {
    const auto value = cuda::load8<kVector>(x.row(r) + c, x.cols - c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) squares += value[i] * value[i];
  }
  squares = cuda::warp_sum(squares);
  if (threadIdx.x == 0) inverse[r] = A(1) / max(sqrt(squares), eps);
}

template <class T, bool kVector>
__global__ void action_rows_kernel(View<const Accum<T>, 2> table, const std::uint32_t* masks,
                                   Rows<T> rows) {
  using A = Accum<T>;
  const std::int64_t r = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= rows.rows) return;
  const std::uint32_t mask = masks[r];
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < rows.cols;
       c += std::int64_t{blockDim.x} * kColumns) {
    Eight<A> sum = {};
    for (std::int64_t bit = 0; bit < table.shape[0]; ++bit) {
      if ((mask >> bit & 1u) == 0) continue;
      const auto row = cuda::load8<false>(table.data + bit * rows.cols + c, rows.cols - c);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum[i] += row[i];
    }
    cuda::store8<kVector>(rows.row(r) + c, rows.cols - c, sum);
  }
}

// A block has kActionRows tokens and one bit; a thread a column at a time.
template <class T>
__global__ void action_parts_kernel(Rows<const T> drows, const std::uint32_t* masks,
                                    std::int64_t actions, Accum<T>* parts) {
  using A = Accum<T>;
  const std::int64_t bit = blockIdx.y;
  const std::int64_t begin = std::int64_t{blockIdx.x} * kActionRows;
  const std::int64_t end = min(begin + kActionRows, drows.rows);
  A* part = parts + (std::int64_t{blockIdx.x} * actions + bit) * drows.cols;
  for (std::int64_t c = threadIdx.x; c < drows.cols; c += blockDim.x) {
    A sum = 0;
    for (std::int64_t r = begin; r < end; ++r) {
      if ((masks[r] >> bit & 1u) != 0) sum += convert<A>(drows(r, c));
    }
    part[c] = sum;
  }
}

}  // namespace

template <class To, class From>
void convert_values(Cuda cuda, View<const From, 1> from, View<To, 1> to) {
  const std::int64_t count = from.shape[0];
  if (count == 0) return;
  constexpr bool kDouble = std::is_same_v<To, double> || std::is_same_v<From, double>;
  const bool vectors = cuda::vectorable(from.data) && cuda::vectorable(to.data);
  using Chosen = std::conditional_t<kDouble, double, To>;
  cuda::choose_vector<Chosen>(vectors, [&](auto vector) {
    convert_kernel<To, From, vector.value>
        <<<blocks_of(count, kThreads * kColumns), kThreads, 0, cuda::stream_of(cuda.stream)>>>(
            from.data, count, to.data);
  });
  cuda::check_launch("convert_values");
}

template <class T>
void fill(Cuda cuda, T value, View<T, 1> to) {
  if (to.shape[0] == 0) return;
  fill_kernel<T><<<blocks_of(to.shape[0], kThreads), kThreads, 0, cuda::stream_of(cuda.stream)>>>(
      value, to.shape[0], to.data);
  cuda::check_launch("fill");
}

template <class T>
void sum_values(Cuda cuda, View<const T, 1> values, double* sum) {
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  const std::int64_t count = values.shape[0];
  WorkspaceScope scratch(cuda.workspace);
  const auto parts = scratch.take<double>(cuda::divide_up(count, kSumPiece));
  if (count > 0) {
    sum_kernel<T><<<static_cast<unsigned>(parts.shape[0]), kSumThreads, 0, stream>>>(
        values.data, count, parts.data);
  }
  sum_parts_kernel<<<1, kSumThreads, 0, stream>>>(parts.data, parts.shape[0], sum);
  cuda::check_launch("sum_values");
}

template <class T>
void inverse_norms(Cuda cuda, Rows<const T> x, double eps, View<Accum<T>, 1> inverse) {
  if (x.rows == 0) return;
  cuda::choose_vector<T>(cuda::vectorable(x), [&](auto vector) {
    inverse_norms_kernel<T, vector.value>
        <<<blocks_of(x.rows, 4), dim3(32, 4), 0, cuda::stream_of(cuda.stream)>>>(
            x, static_cast<Accum<T>>(eps), inverse.data);
  });
  cuda::check_launch("inverse_norms");
}

template <class T>
void action_rows(Cuda cuda, View<const Accum<T>, 2> table, View<const std::uint32_t, 1> masks,
                 Rows<T> rows) {
  if (rows.rows == 0 || rows.cols == 0) return;
  const dim3 block = cuda::team_block(std::min(rows.cols, cuda::kMaxWidth));
  cuda::choose_vector<T>(cuda::vectorable(rows), [&](auto vector) {
    action_rows_kernel<T, vector.value>
        <<<blocks_of(rows.rows, block.y), block, 0, cuda::stream_of(cuda.stream)>>>(
            table, masks.data, rows);
  });
  cuda::check_launch("action_rows");
}

template <class T>
void action_rows_backward(Cuda cuda, Rows<const T> drows, View<const std::uint32_t, 1> masks,
                          View<Accum<T>, 2> dtable) {
  using A = Accum<T>;
  if (drows.rows == 0 || drows.cols == 0) return;
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  const std::int64_t parts = cuda::divide_up(drows.rows, kActionRows);
  const std::int64_t actions = dtable.shape[0];
  WorkspaceScope scratch(cuda.workspace);
  A* sums = scratch.take<A, 2>({parts * actions, drows.cols}).data;
  action_parts_kernel<T>
      <<<dim3(static_cast<unsigned>(parts), static_cast<unsigned>(actions)), kThreads, 0, stream>>>(
          drows, masks.data, actions, sums);
  // A part is a whole table end to end.
  add_parts<A>(stream, sums, parts, {dtable.data, {actions * drows.cols}});
  cuda::check_launch("action_rows_backward");
}

template <class T>
std::size_t action_rows_workspace_bytes(Cuda, std::int64_t tokens, std::int64_t actions,
                                        std::int64_t width) {
  return workspace_bytes_of<Accum<T>>(cuda::divide_up(tokens, kActionRows) * actions * width);
}

#define TGR_INSTANTIATE(T)                                                                  \
  template void fill<T>(Cuda, T, View<T, 1>);                                               \
  template void sum_values<T>(Cuda, View<const T, 1>, double*);                             \
  template void inverse_norms<T>(Cuda, Rows<const T>, double, View<Accum<T>, 1>);           \
  template void convert_values<T, double>(Cuda, View<const double, 1>, View<T, 1>);         \
  template void convert_values<T, float>(Cuda, View<const float, 1>, View<T, 1>);           \
  template void convert_values<T, bf16>(Cuda, View<const bf16, 1>, View<T, 1>);             \
  template void action_rows<T>(Cuda, View<const Accum<T>, 2>, View<const std::uint32_t, 1>, \
                               Rows<T>);                                                    \
  template void action_rows_backward<T>(Cuda, Rows<const T>, View<const std::uint32_t, 1>,  \
                                        View<Accum<T>, 2>);                                 \
  template std::size_t action_rows_workspace_bytes<T>(Cuda, std::int64_t, std::int64_t,     \
                                                      std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE
template void convert_values<float, f16>(Cuda, View<const f16, 1>, View<float, 1>);
template void convert_values<bf16, f16>(Cuda, View<const f16, 1>, View<bf16, 1>);
template void fill<std::int64_t>(Cuda, std::int64_t, View<std::int64_t, 1>);
template void fill<std::int32_t>(Cuda, std::int32_t, View<std::int32_t, 1>);

}  // namespace turbogr::ops::kernels
