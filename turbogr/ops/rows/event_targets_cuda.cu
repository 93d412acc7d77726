#include "turbogr/cuda/row_launch.cuh"
#include "turbogr/ops/rows/event_targets_kernels.h"

namespace turbogr::ops::kernels {
namespace {

using cuda::kColumns;
using cuda::over_columns;
using cuda::RowLaunch;

constexpr unsigned kScanThreads = 1024;
constexpr unsigned kWriters = 128;  // threads a sequence

// starts(b) = the number of targets before sequence b, and then all. One block, which walks over
// the sequences.
__global__ void __launch_bounds__(kScanThreads)
    target_starts_kernel(View<const std::int64_t, 1> num_targets, std::int64_t* starts) {
  __shared__ std::int64_t sums[kScanThreads];
  std::int64_t before = 0;
  for (std::int64_t base = 0; base < num_targets.shape[0]; base += kScanThreads) {
    const std::int64_t b = base + threadIdx.x;
    const std::int64_t own = b < num_targets.shape[0] ? num_targets.data[b] : 0;
    sums[threadIdx.x] = own;
    __syncthreads();
    for (unsigned step = 1; step < kScanThreads; step *= 2) {
      const std::int64_t more = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
      __syncthreads();
      sums[threadIdx.x] += more;
      __syncthreads();
    }
    if (b < num_targets.shape[0]) starts[b] = before + sums[threadIdx.x] - own;
    before += sums[kScanThreads - 1];
    __syncthreads();
  }
  if (threadIdx.x == 0) starts[num_targets.shape[0]] = before;
}

// A block a sequence.
__global__ void find_targets_kernel(EventSequences s, View<const std::uint64_t, 1> row_keys,
                                    EventTargets targets) {
  const EventSequence at = event_sequence(s, blockIdx.x);
  for (std::int64_t j = threadIdx.x; j < at.targets; j += kWriters) {
    const std::int64_t i = targets.starts.data[blockIdx.x] + j;
    if (i >= targets.tokens.shape[0]) return;  // the host has checked: only memory is kept safe
    const std::int64_t event = at.event + at.history + j;
    const std::int64_t token = at.token + s.num_prefix + at.history + j;
    targets.tokens.data[i] = token;
    targets.keys.data[i] =
        row_keys.data == nullptr ? static_cast<std::uint64_t>(token) : row_keys.data[token];
    targets.events.data[i] = event;
    targets.times.data[i] = s.times.data[event];
  }
}

// out(places(i)) = rows(i), or with kAdd that and what was there.
template <class T, bool kAdd, bool kVector>
__global__ void place_rows_kernel(Rows<const T> rows, const std::int64_t* places, Rows<T> out) {
  over_columns(rows.rows, rows.cols, [&](std::int64_t r, std::int64_t c) {
    const std::int64_t place = places[r];
    if (place < 0 || place >= out.rows) return;
    T* to = out.row(place) + c;
    auto value = cuda::load8<kVector>(rows.row(r) + c, rows.cols - c);
    if constexpr (kAdd) {
      const auto before = cuda::load8<kVector>(to, rows.cols - c);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) value[i] += before[i];
    }
    cuda::store8<kVector>(to, rows.cols - c, value);
  });
}

template <class T, bool kAdd>
void place_all(Cuda cuda, const char* op, Rows<const T> rows, View<const std::int64_t, 1> places,
               Rows<T> out) {
  if (rows.rows == 0 || rows.cols == 0) return;
  const RowLaunch l(cuda, rows.rows, rows.cols);
  cuda::choose_vector<T>(cuda::vectorable(rows) && cuda::vectorable(out), [&](auto vector) {
    place_rows_kernel<T, kAdd, vector.value>
        <<<l.blocks, l.block, 0, l.stream>>>(rows, places.data, out);
  });
  cuda::check_launch(op);
}

}  // namespace

void find_targets(Cuda cuda, const EventSequences& sequences, View<const std::uint64_t, 1> row_keys,
                  const EventTargets& targets) {
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  target_starts_kernel<<<1, kScanThreads, 0, stream>>>(sequences.num_targets, targets.starts.data);
  if (sequences.batch() > 0 && targets.tokens.shape[0] > 0) {
    find_targets_kernel<<<static_cast<unsigned>(sequences.batch()), kWriters, 0, stream>>>(
        sequences, row_keys, targets);
  }
  cuda::check_launch("find_targets");
}

template <class T>
void spread_rows(Cuda cuda, Rows<const T> rows, View<const std::int64_t, 1> places, Rows<T> out) {
  if (out.rows > 0 && out.cols > 0) {  // zero is all bits zero in every format
    TGR_CUDA_CALL(cudaMemset2DAsync(out.data, static_cast<std::size_t>(out.stride) * sizeof(T), 0,
                                    static_cast<std::size_t>(out.cols) * sizeof(T),
                                    static_cast<std::size_t>(out.rows),
                                    cuda::stream_of(cuda.stream)));
  }
  place_all<T, false>(cuda, "spread_rows", rows, places, out);
}

template <class T>
void add_rows_at(Cuda cuda, Rows<const T> rows, View<const std::int64_t, 1> places, Rows<T> out) {
  place_all<T, true>(cuda, "add_rows_at", rows, places, out);
}

#define TGR_INSTANTIATE(T)                                                                 \
  template void spread_rows<T>(Cuda, Rows<const T>, View<const std::int64_t, 1>, Rows<T>); \
  template void add_rows_at<T>(Cuda, Rows<const T>, View<const std::int64_t, 1>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
