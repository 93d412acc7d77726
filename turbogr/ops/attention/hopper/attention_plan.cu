#include <cstdio>

#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/attention_pairs.cuh"
#include "turbogr/ops/attention/hopper/attention_plan.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kWarps = 4;

// Times relative to the first key, if they are sorted (keys, queries, and no query before its own
// key) and close enough together for 32 bits; rows past the end repeat the last time.
__device__ void relative_times(const PlanArgs& args, std::int64_t first, int length, int number,
                               int padded_end) {
  const int lane = threadIdx.x % 32;
  const std::int64_t* keys = args.key_times + first;
  const std::int64_t* queries = args.query_times + first;
  const std::int64_t base = length > 0 ? keys[0] : 0;
  const auto last = static_cast<std::uint64_t>(length > 0 ? queries[length - 1] - base : 0);
  bool good = last < 0xffffffffull;
  for (int i = lane; i < length; i += 32) {
    good &= queries[i] >= keys[i];
    if (i > 0) good &= keys[i] >= keys[i - 1] && queries[i] >= queries[i - 1];
  }
  good = __all_sync(~0u, good);
  if (lane == 0) args.usable[number] = good;
  const std::int64_t begin = static_cast<std::int64_t>(first / kPaddedRows + number) * kPaddedRows;
  for (int i = lane; i < padded_end; i += 32) {
    const int at = min(i, length - 1);
    args.relative_key_times[begin + i] = static_cast<std::uint32_t>(keys[at] - base);
    args.relative_query_times[begin + i] = static_cast<std::uint32_t>(queries[at] - base);
  }
}

// What is there of fewer long sequences than there can be: no tiles. The numbers of no sequence
// lead to tiles behind those of all sequences.
__global__ void clear_plan_kernel(PlanArgs args) {
  const int stride = static_cast<int>(gridDim.x * blockDim.x);
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  for (int i = thread; i < args.num_dq_tiles; i += stride) args.dq_tiles[i] = {};
  for (int i = thread; i < args.most_long; i += stride) {
    args.long_offsets[i] = args.tokens;
    args.long_sequences[i] = 0;
  }
  for (const PassPlanArgs& pass : {args.forward, args.backward}) {
    const int ranges = pass.ranges != nullptr ? args.bands.count * args.most_long : 0;
    for (int i = thread; i < ranges; i += stride) pass.ranges[i] = {};
  }
}

// What the list of a pass has before its tiles, of which the sequence's begin at `start`.
__device__ void write_areas(const PassPlanArgs& pass, bool queries, int start, int area,
                            int length) {
  const int units = pass.rows / kUnit;
  const int blocks = tiles_of(length, pass.rows);
  const int tiles = tiles_of(length);
  for (int i = static_cast<int>(threadIdx.x) % 32; i <= blocks; i += 32) {
    const std::int64_t before = i == blocks ? triangle(tiles)
                                : queries   ? units_after_queries(blocks - 1 - i, units, tiles)
                                            : units_before_keys(i, units, tiles);
    pass.areas[start + i] = area + static_cast<int>(before);
  }
}

// One warp a sequence: the place of a long one among the others by counting those that go before
// it.
__global__ void plan_kernel(PlanArgs args) {
  const int sequence = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (sequence >= args.batch) return;
  const int lane = threadIdx.x % 32;
  const std::int64_t first = args.offsets[sequence];
  const int length = static_cast<int>(args.offsets[sequence + 1] - first);
  if (length <= kPackRows) return;
  int number = 0;  // among the long ones
  int forward_start = 0;
  int backward_start = 0;
  int pair_start = 0;
  for (int other = lane; other < args.batch; other += 32) {
    const int n = static_cast<int>(args.offsets[other + 1] - args.offsets[other]);
    if (n > length || (n == length && other < sequence)) {
      forward_start += tiles_of(n, args.forward.rows);
      backward_start += tiles_of(n, args.backward.rows);
      pair_start += static_cast<int>(units_of(n));
    }
    if (other < sequence && n > kPackRows) ++number;
  }
  number = __reduce_add_sync(~0u, number);
  forward_start = __reduce_add_sync(~0u, forward_start);
  backward_start = __reduce_add_sync(~0u, backward_start);
  pair_start = __reduce_add_sync(~0u, pair_start);
  const int forward_tiles = tiles_of(length, args.forward.rows);
  const int backward_tiles = tiles_of(length, args.backward.rows);
  AttentionItem item{static_cast<int>(first), length, number, 0, 0};

  for (int i = lane; i < forward_tiles * args.heads; i += 32) {
    item.head = static_cast<std::uint16_t>(i % args.heads);
    item.block = static_cast<std::uint16_t>(forward_tiles - 1 - (i / args.heads));
    args.forward.items[forward_start * args.heads + i] = item;
  }
  for (int i = lane; i < backward_tiles * args.heads; i += 32) {
    item.head = static_cast<std::uint16_t>(i % args.heads);
    item.block = static_cast<std::uint16_t>(i / args.heads);
    args.backward.items[backward_start * args.heads + i] = item;
  }
  item.head = 0;
  const int dq_tiles = tiles_of(length, kPaddedRows);
  const auto dq_begin = static_cast<int>(first / kPaddedRows) + number;
  const auto dq_end = static_cast<int>((first + length) / kPaddedRows) + number + 1;
  for (int i = lane; i < dq_end - dq_begin; i += 32) {
    item.block = static_cast<std::uint16_t>(i);
    item.length = i < dq_tiles ? length : 0;
    args.dq_tiles[dq_begin + i] = item;
  }
  if (lane == 0) {
    args.long_offsets[number] = first;
    args.long_sequences[number] = sequence;
    if (args.pair_units > 0 && pair_start + units_of(length) > args.pair_units) {
      std::printf("attention: sequence %d has %d tokens, more than the max_length of the plan\n",
                  sequence, length);
      __trap();
    }
    // The last bound of all.
    atomicAdd(args.forward.bounds + args.bands.count, forward_tiles * args.heads);
    atomicAdd(args.backward.bounds + args.bands.count, backward_tiles * args.heads);
    if (args.bands.count == 1 && args.forward.ranges != nullptr) {
      // For both passes.
      args.forward.ranges[number] = {pair_start, 0, tiles_of(length), 0};
    }
  }
  if (args.bands.count > 1) {
    write_areas(args.forward, true, forward_start, pair_start, length);
    write_areas(args.backward, false, backward_start, pair_start, length);
  }
  if (args.key_times != nullptr && length > 0) {
    relative_times(args, first, length, number, (dq_end - dq_begin) * kPaddedRows);
  }
}

__device__ void zero(float4* data, std::size_t pieces) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < pieces;
       i += stride) {
    data[i] = make_float4(0, 0, 0, 0);
  }
}
__global__ void zero_kernel(float4* data, std::size_t pieces) { zero(data, pieces); }
__global__ void zero_band_kernel(float4* units, const int* bounds, const int* areas, int heads) {
  const int count = areas[bounds[1] / heads] - areas[bounds[0] / heads];
  zero(units, static_cast<std::size_t>(count) * (kUnitBytes / 16));
}

}  // namespace

void launch_zero(void* data, std::size_t pieces, cudaStream_t stream) {
  if (pieces == 0) return;
  zero_kernel<<<2048, 256, 0, stream>>>(static_cast<float4*>(data), pieces);
  check(cudaGetLastError(), "attention zero");
}
void launch_zero_band(void* units, const int* bounds, const int* areas, int heads,
                      cudaStream_t stream) {
  zero_band_kernel<<<2048, 256, 0, stream>>>(static_cast<float4*>(units), bounds, areas, heads);
  check(cudaGetLastError(), "attention zero");
}

void launch_plan(const PlanArgs& args, cudaStream_t stream) {
  if (args.batch == 0) return;
  if (args.most_long > 0) {
    clear_plan_kernel<<<64, 256, 0, stream>>>(args);
    check(cudaGetLastError(), "attention plan");
    plan_kernel<<<(args.batch + kWarps - 1) / kWarps, 32 * kWarps, 0, stream>>>(args);
    check(cudaGetLastError(), "attention plan");
    if (args.bands.count > 1) launch_bands(args, stream);
  }
  launch_packs({args.offsets, args.batch, args.most_long > 0, args.num_packs, args.packs}, stream);
}

}  // namespace turbogr::cuda
