#include <cstdio>

#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/attention_short.cuh"

namespace turbogr::cuda {
namespace {

// One block a chunk, one thread a sequence. Each finds where a pack that begins with its sequence
// would end; one thread goes from the first pack's end to the next one's and so on, and the threads
// it meets write their packs.
__global__ void __launch_bounds__(kPackChunk) pack_kernel(PackPlanArgs args) {
  __shared__ std::int64_t offsets[kPackChunk + 1];
  __shared__ int ends[kPackChunk];
  __shared__ bool begins[kPackChunk];
  const int thread = static_cast<int>(threadIdx.x);
  const int first = static_cast<int>(blockIdx.x) * kPackChunk;
  const int count = min(kPackChunk, args.batch - first);
  for (int i = thread; i <= count; i += kPackChunk) offsets[i] = args.offsets[first + i];
  begins[thread] = false;
  __syncthreads();
  if (thread < count) {
    // The last end that leaves room, or none: a long sequence is passed over.
    int end = thread;
    for (int step = kPackChunk; step > 0; step /= 2) {
      const int next = end + step;
      if (next <= count && offsets[next] - offsets[thread] <= kPackRows) end = next;
    }
    ends[thread] = end;
    if (end == thread && !args.longer_allowed) {
      std::printf("attention: sequence %d has %lld tokens, more than the max_length of the plan\n",
                  first + thread, static_cast<long long>(offsets[thread + 1] - offsets[thread]));
      __trap();
    }
  }
  __syncthreads();
  if (thread == 0) {
    for (int i = 0; i < count; i = max(ends[i], i + 1)) begins[i] = true;
  }
  __syncthreads();
  if (!begins[thread]) return;
  const std::int64_t first_row = offsets[thread];
  AttentionPack pack{};
  pack.first_row = static_cast<int>(first_row);
  pack.rows = static_cast<int>(offsets[ends[thread]] - first_row);
  pack.first_sequence = first + thread;
  pack.end_sequence = first + ends[thread];
  for (int i = thread; i < ends[thread]; ++i) {
    if (offsets[i + 1] > offsets[i]) pack.starts |= std::uint64_t{1} << (offsets[i] - first_row);
  }
  if (pack.rows > 0) args.packs[atomicAdd(args.num_packs, 1)] = pack;
}

}  // namespace

void launch_packs(const PackPlanArgs& args, cudaStream_t stream) {
  if (args.batch == 0) return;
  pack_kernel<<<(args.batch + kPackChunk - 1) / kPackChunk, kPackChunk, 0, stream>>>(args);
  check(cudaGetLastError(), "attention packs");
}

}  // namespace turbogr::cuda
