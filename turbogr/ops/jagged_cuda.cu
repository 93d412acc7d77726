#include "turbogr/cuda/columns.cuh"
#include "turbogr/ops/jagged_kernels.h"

namespace turbogr::ops::kernels {
namespace {

// The sequence that holds row r of a batch, empty ones stepped over.
__device__ std::int64_t sequence_of(Offsets offsets, std::int64_t r) {
  std::int64_t low = 0;
  std::int64_t high = offsets.shape[0] - 1;
  while (low < high) {  // the first offset above r
    const std::int64_t middle = (low + high) / 2;
    if (offsets.data[middle] <= r) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

// A row on one side, or nothing: then it is zeros.
template <class T>
struct RowPair {
  const T* from;
  T* to;
};

// Calls pair_of(sequence, row inside it) for every row of the batch with these offsets and copies.
template <class T, class PairOf>
__global__ void copy_rows_kernel(Offsets offsets, std::int64_t rows, std::int64_t cols,
                                 PairOf pair_of) {
  const std::int64_t r = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= rows) return;
  const std::int64_t s = sequence_of(offsets, r);
  const RowPair<T> pair = pair_of(s, r - offsets.data[s]);
  for (std::int64_t c = threadIdx.x; c < cols; c += 32) {
    pair.to[c] = pair.from == nullptr ? convert<T>(0.0f) : pair.from[c];
  }
}

template <class T, class PairOf>
void copy_rows(Cuda cuda, const char* op, Offsets offsets, std::int64_t rows, std::int64_t cols,
               PairOf pair_of) {
  if (rows == 0 || cols == 0) return;
  copy_rows_kernel<T><<<static_cast<unsigned>(cuda::divide_up(rows, 4)), dim3(32, 4), 0,
                        cuda::stream_of(cuda.stream)>>>(offsets, rows, cols, pair_of);
  cuda::check_launch(op);
}

template <class T>
struct ConcatPair {
  Jagged<const T> a, b;
  Jagged<T> whole;
  __device__ RowPair<T> operator()(std::int64_t s, std::int64_t row) const {
    const std::int64_t cut = a.offsets.data[s + 1] - a.offsets.data[s];
    T* to = whole.values.row(whole.offsets.data[s] + row);
    if (row < cut) return {a.values.row(a.offsets.data[s] + row), to};
    return {b.values.row(b.offsets.data[s] + row - cut), to};
  }
};

template <class T>
struct SplitPair {
  Jagged<const T> whole;
  Jagged<T> a, b;
  __device__ RowPair<T> operator()(std::int64_t s, std::int64_t row) const {
    const std::int64_t cut = a.offsets.data[s + 1] - a.offsets.data[s];
    const T* from = whole.values.row(whole.offsets.data[s] + row);
    if (row < cut) return {from, a.values.row(a.offsets.data[s] + row)};
    return {from, b.values.row(b.offsets.data[s] + row - cut)};
  }
};

template <class T>
struct LastPair {
  Jagged<const T> x;
  Jagged<T> out;
  __device__ RowPair<T> operator()(std::int64_t s, std::int64_t row) const {
    const std::int64_t kept = out.offsets.data[s + 1] - out.offsets.data[s];
    return {x.values.row(x.offsets.data[s + 1] - kept + row),
            out.values.row(out.offsets.data[s] + row)};
  }
};

template <class T>
struct LastBackwardPair {
  Jagged<const T> dout;
  Jagged<T> dx;
  __device__ RowPair<T> operator()(std::int64_t s, std::int64_t row) const {
    const std::int64_t kept = dout.offsets.data[s + 1] - dout.offsets.data[s];
    const std::int64_t dropped = dx.offsets.data[s + 1] - dx.offsets.data[s] - kept;
    T* to = dx.values.row(dx.offsets.data[s] + row);
    if (row < dropped) return {nullptr, to};
    return {dout.values.row(dout.offsets.data[s] + row - dropped), to};
  }
};

template <class T>
struct FromPaddedPair {
  View<const T, 3> x;
  Jagged<T> out;
  __device__ RowPair<T> operator()(std::int64_t s, std::int64_t row) const {
    return {x.data + (s * x.shape[1] + row) * x.shape[2],
            out.values.row(out.offsets.data[s] + row)};
  }
};

template <class T>
__global__ void to_padded_kernel(Jagged<const T> x, View<T, 3> out) {
  const std::int64_t r = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= out.shape[0] * out.shape[1]) return;
  const std::int64_t s = r / out.shape[1];
  const std::int64_t row = x.offsets.data[s] + r % out.shape[1];
  const bool there = row < x.offsets.data[s + 1];
  for (std::int64_t c = threadIdx.x; c < out.shape[2]; c += 32) {
    out.data[r * out.shape[2] + c] = there ? x.values(row, c) : convert<T>(0.0f);
  }
}

}  // namespace

template <class T>
void jagged_concat(Cuda cuda, Jagged<const T> a, Jagged<const T> b, Jagged<T> whole) {
  copy_rows<T>(cuda, "jagged_concat", whole.offsets, whole.tokens(), whole.width(),
               ConcatPair<T>{a, b, whole});
}

template <class T>
void jagged_split(Cuda cuda, Jagged<const T> whole, Jagged<T> a, Jagged<T> b) {
  copy_rows<T>(cuda, "jagged_split", whole.offsets, whole.tokens(), whole.width(),
               SplitPair<T>{whole, a, b});
}

template <class T>
void last_k_rows(Cuda cuda, Jagged<const T> x, Jagged<T> out) {
  copy_rows<T>(cuda, "last_k_rows", out.offsets, out.tokens(), out.width(), LastPair<T>{x, out});
}

template <class T>
void last_k_rows_backward(Cuda cuda, Jagged<const T> dout, Jagged<T> dx) {
  copy_rows<T>(cuda, "last_k_rows_backward", dx.offsets, dx.tokens(), dx.width(),
               LastBackwardPair<T>{dout, dx});
}

template <class T>
void to_padded(Cuda cuda, Jagged<const T> x, View<T, 3> out) {
  if (out.size() == 0) return;
  to_padded_kernel<T><<<static_cast<unsigned>(cuda::divide_up(out.shape[0] * out.shape[1], 4)),
                        dim3(32, 4), 0, cuda::stream_of(cuda.stream)>>>(x, out);
  cuda::check_launch("to_padded");
}

template <class T>
void from_padded(Cuda cuda, View<const T, 3> x, Jagged<T> out) {
  copy_rows<T>(cuda, "from_padded", out.offsets, out.tokens(), out.width(),
               FromPaddedPair<T>{x, out});
}

#define TGR_INSTANTIATE(T)                                                           \
  template void jagged_concat<T>(Cuda, Jagged<const T>, Jagged<const T>, Jagged<T>); \
  template void jagged_split<T>(Cuda, Jagged<const T>, Jagged<T>, Jagged<T>);        \
  template void last_k_rows<T>(Cuda, Jagged<const T>, Jagged<T>);                    \
  template void last_k_rows_backward<T>(Cuda, Jagged<const T>, Jagged<T>);           \
  template void to_padded<T>(Cuda, Jagged<const T>, View<T, 3>);                     \
  template void from_padded<T>(Cuda, View<const T, 3>, Jagged<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
