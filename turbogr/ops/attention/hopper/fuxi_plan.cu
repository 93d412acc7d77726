#include <cuda_bf16.h>

#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/fuxi_args.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kWarps = 4;

__device__ int blocks_of(int length) { return (length + kFuxiRows - 1) / kFuxiRows; }

// Times relative to the first key, if they are sorted (keys, queries, and no query before its own
// key) and close enough together for 32 bits; rows past the end repeat the last time.
__device__ void relative_times(const FuxiPlanArgs& args, std::int64_t first, int length,
                               int sequence, int padded_rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t* keys = args.key_times + first;
  const std::int64_t* queries = args.query_times + first;
  const std::int64_t base = keys[0];
  const auto span =
      static_cast<std::uint64_t>(queries[length - 1]) - static_cast<std::uint64_t>(base);
  bool good = span < 0xfffffffeull;
  for (int i = lane; i < length; i += 32) {
    good &= queries[i] >= keys[i];
    if (i > 0) good &= keys[i] >= keys[i - 1] && queries[i] >= queries[i - 1];
  }
  good = __all_sync(~0u, good);
  if (lane == 0) args.usable[sequence] = good;
  const std::int64_t begin = (first / kFuxiRows + sequence) * kFuxiRows;
  for (int i = lane; i < padded_rows; i += 32) {
    const int at = min(i, length - 1);
    args.relative_key_times[begin + i] = static_cast<std::uint32_t>(keys[at] - base);
    args.relative_query_times[begin + i] = static_cast<std::uint32_t>(queries[at] - base);
  }
}

// One warp a sequence: its place among the others, long ones first, by counting those that go
// before it. In a sequence the rows that see most come first.
__global__ void plan_kernel(FuxiPlanArgs args) {
  const int sequence = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (sequence >= args.batch) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t first = args.offsets[sequence];
  const int length = static_cast<int>(args.offsets[sequence + 1] - first);
  int start = 0;
  for (int other = lane; other < args.batch; other += 32) {
    const int n = static_cast<int>(args.offsets[other + 1] - args.offsets[other]);
    if (n > length || (n == length && other < sequence)) start += blocks_of(n);
  }
  start = __reduce_add_sync(~0u, start);
  const int blocks = blocks_of(length);
  for (int i = lane; i < blocks; i += 32) {
    args.items[start + i] = {static_cast<int>(first), length, sequence, blocks - 1 - i};
  }
  if (lane == 0) atomicAdd(args.num_items, blocks);
  if (args.key_times != nullptr && length > 0) {
    const auto padded = (first + length) / kFuxiRows - first / kFuxiRows + 1;
    relative_times(args, first, length, sequence, static_cast<int>(padded) * kFuxiRows);
  }
}

__global__ void pairs_kernel(FuxiMaps maps, int neighbour, std::uint32_t* pairs) {
  const int offset = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) -
                     (maps.position_length - 1) - kFuxiMargin;
  if (offset > kFuxiMargin) return;
  const auto weight = [&](int at) {
    return at > 0 || at <= -maps.position_length ? 0.f : maps.position[at];
  };
  pairs[offset] = pack_bf16(weight(offset), weight(offset + neighbour));
}

__global__ void copy_kernel(FuxiCopyArgs args) {
  const int pieces = args.width / 8;
  const std::int64_t count = args.tokens * args.heads * pieces;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const std::int64_t token = i / (args.heads * pieces);
    const auto rest = static_cast<int>(i % (args.heads * pieces));
    const int head = rest / pieces;
    const int column = rest % pieces * 8;
    const auto* from = static_cast<const std::uint16_t*>(args.from) + token * args.from_stride +
                       head * args.from_head_stride + column;
    auto* to = static_cast<std::uint16_t*>(args.to) + token * args.to_stride +
               head * args.to_head_stride + column;
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
  }
}

}  // namespace

void launch_fuxi_plan(const FuxiPlanArgs& args, cudaStream_t stream) {
  if (args.batch == 0) return;
  plan_kernel<<<(args.batch + kWarps - 1) / kWarps, 32 * kWarps, 0, stream>>>(args);
  check(cudaGetLastError(), "fuxi plan");
}

void launch_fuxi_pairs(const FuxiMaps& maps, bool backward, cudaStream_t stream) {
  const int count = maps.position_length + 2 * kFuxiMargin;
  pairs_kernel<<<(count + 255) / 256, 256, 0, stream>>>(maps, backward ? -1 : 1,
                                                        const_cast<std::uint32_t*>(maps.pairs));
  check(cudaGetLastError(), "fuxi pairs");
}

void launch_fuxi_copy(const FuxiCopyArgs& args, cudaStream_t stream) {
  copy_kernel<<<1024, 256, 0, stream>>>(args);
  check(cudaGetLastError(), "fuxi copy");
}

}  // namespace turbogr::cuda
