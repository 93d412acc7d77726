// Gradients of the position and time tables: tiles of dout_map V^T over the columns of all heads,
// summed along diagonals and into buckets. A block is a producer warp, two warpgroups that multiply
// tiles of 128 queries and 128 keys for both maps, three warps that sum diagonals and a warpgroup
// that sums buckets, while the next tile is being multiplied. Bound by the tensor cores and shared
// memory.
#include "turbogr/cuda/check.cuh"
#include "turbogr/cuda/wgmma.cuh"
#include "turbogr/ops/attention/hopper/attention_tile.cuh"
#include "turbogr/ops/attention/hopper/fuxi_args.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kStages = 3;
constexpr int kPanelBytes = kFuxiRows * 128;     // 128 rows, 64 columns
constexpr int kStageBytes = 3 * kPanelBytes;     // dout of both maps, v
constexpr int kGradientBytes = 2 * kPanelBytes;  // 128 queries, 128 keys of one map
constexpr int kThreads = 512;
constexpr int kMultiplyWarps = 8;
constexpr int kPositionWarps = 3;
constexpr int kTimeWarps = 4;
constexpr int kSharedBytes = 1024 + kStages * kStageBytes + 2 * kGradientBytes;

struct Shared {
  FuxiTaskRing tasks;
  std::uint64_t full[kStages], empty[kStages];
  std::uint64_t gradients_full, gradients_empty;
  GapTable table;  // y: the bin's first bucket
};

// The key blocks of a task, from `first` down to `last`. An item's keys are dealt out evenly: short
// tasks, so that few sequences are in work at a time and stay in the cache.
struct KeyBlocks {
  int first;
  int last;

  __device__ __forceinline__ KeyBlocks(const FuxiWork& work, const FuxiTask& task)
      : first((task.item.block + 1) * (task.part + 1) / work.parts - 1),
        last((task.item.block + 1) * task.part / work.parts) {}
};

__device__ __forceinline__ void produce(const FuxiTablesArgs& args, bool position, bool time,
                                        char* tiles, Shared& shared) {
  RingPlace<kStages> place;
  RingPlace<FuxiTaskRing::kSlots> slot;
  FuxiSource source(args.work, args.maps);
  const int bytes = (1 + position + time) * kPanelBytes;
  for (;;) {
    FuxiTask task = source.take();
    KeyBlocks blocks(args.work, task);
    while (task.item.length >= 0 && blocks.first < blocks.last) {
      task = source.take();
      blocks = KeyBlocks(args.work, task);
    }
    barrier_wait(&shared.tasks.empty[slot.index()], slot.phase() ^ 1);
    shared.tasks.task[slot.index()] = task;
    barrier_arrive(&shared.tasks.full[slot.index()]);
    slot.advance();
    if (task.item.length < 0) break;
    const int query = task.item.first_row + task.item.block * kFuxiRows;
    for (int block = blocks.first; block >= blocks.last; --block) {
      const int key = task.item.first_row + block * kFuxiRows;
      for (int panel = 0; panel < args.panels; ++panel) {
        const int column = panel % args.panels_per_head * 64;
        const int head = panel / args.panels_per_head;
        std::uint64_t* full = &shared.full[place.index()];
        char* stage = tiles + place.index() * kStageBytes;
        barrier_wait(&shared.empty[place.index()], place.phase() ^ 1);
        barrier_expect(full, bytes);
        for (int half = 0; half < 2; ++half) {
          char* to = stage + half * (kPanelBytes / 2);
          if (position) load_box(to, &args.dout[0], full, column, head, query + 64 * half);
          if (time) {
            load_box(to + kPanelBytes, &args.dout[1], full, column, head, query + 64 * half);
          }
          load_box(to + 2 * kPanelBytes, &args.v, full, column, head, key + 64 * half);
        }
        place.advance();
      }
    }
  }
  source.finish();
}

// The next task, for one of the warps that share in it.
__device__ __forceinline__ FuxiTask next_task(Shared& shared,
                                              RingPlace<FuxiTaskRing::kSlots>& slot) {
  barrier_wait(&shared.tasks.full[slot.index()], slot.phase());
  const FuxiTask task = shared.tasks.task[slot.index()];
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(&shared.tasks.empty[slot.index()]);
  slot.advance();
  return task;
}

// A tile of gradients is two panels of 128 queries and 64 keys, lines of 128 swizzled bytes.
__device__ __forceinline__ void store_gradients(const float (&sums)[64], char* gradients) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + lane % 16;
  const std::uint32_t line = shared_address(gradients) + row * 128;
  TGR_UNROLL
  for (int i = 0; i < 8; ++i) {  // sixteen keys each
    std::uint32_t r[4];
    TGR_UNROLL
    for (int j = 0; j < 4; ++j) r[j] = pack_bf16(sums[8 * i + 2 * j], sums[8 * i + 2 * j + 1]);
    const int piece = (i % 4 * 2 + lane / 16) ^ (row & 7);
    store_blocks(line + i / 4 * kPanelBytes + piece * 16, r);
  }
}

template <bool kPosition, bool kTime>
__device__ __forceinline__ void multiply(const FuxiTablesArgs& args, char* tiles, char* gradients,
                                         Shared& shared) {
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Operand<64> dout_operand(tiles + group * 64 * 128, 16);
  const Operand<64> v_operand(tiles + 2 * kPanelBytes, 16);
  RingPlace<kStages> place;
  RingPlace<FuxiTaskRing::kSlots> slot;
  int phase = 0;
  [[maybe_unused]] float position[64];
  [[maybe_unused]] float time[64];
  const auto release = [&](int stage) {
    if (lane == 0) barrier_arrive(&shared.empty[stage]);
  };
  for (;;) {
    const FuxiTask task = next_task(shared, slot);
    if (task.item.length < 0) break;
    const KeyBlocks blocks(args.work, task);
    for (int block = blocks.first; block >= blocks.last; --block) {
      int before = 0;
      for (int panel = 0; panel < args.panels; ++panel) {
        barrier_wait(&shared.full[place.index()], place.phase());
        const int stage = place.index() * kStageBytes;
        wgmma_fence();
        TGR_UNROLL
        for (int step = 0; step < 4; ++step) {
          if constexpr (kPosition) {
            Wgmma<128>::ss<0, 0>(position, dout_operand.at(stage + 32 * step),
                                 v_operand.at(stage + 32 * step), panel != 0 || step != 0);
          }
          if constexpr (kTime) {
            Wgmma<128>::ss<0, 0>(time, dout_operand.at(stage + kPanelBytes + 32 * step),
                                 v_operand.at(stage + 32 * step), panel != 0 || step != 0);
          }
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (panel != 0) release(before);
        before = place.index();
        place.advance();
      }
      wgmma_wait<0>();
      if constexpr (kPosition) pin(position);
      if constexpr (kTime) pin(time);
      release(before);
      barrier_wait(&shared.gradients_empty, phase ^ 1);
      phase ^= 1;
      if constexpr (kPosition) store_gradients(position, gradients);
      if constexpr (kTime) store_gradients(time, gradients + kGradientBytes);
      __syncwarp();
      if (lane == 0) barrier_arrive(&shared.gradients_full);
    }
  }
}

// Sums along diagonals. Thread t takes the keys (row + t) mod 128 of each row: the diagonal t of
// this tile up to its corner, from there on the one that goes on as diagonal t in the next tile.
__device__ __forceinline__ void sum_diagonals(const FuxiTablesArgs& args, const char* gradients,
                                              Shared& shared) {
  constexpr int kWorkers = 32 * kPositionWarps;
  const int thread = static_cast<int>(threadIdx.x) - 288;
  RingPlace<FuxiTaskRing::kSlots> slot;
  int phase = 0;
  for (;;) {
    const FuxiTask task = next_task(shared, slot);
    if (task.item.length < 0) break;
    const int rows = min(task.item.length - task.item.block * kFuxiRows, kFuxiRows);
    float carry[2] = {0, 0};
    const KeyBlocks blocks(args.work, task);
    for (int block = blocks.first; block >= blocks.last; --block) {
      barrier_wait(&shared.gradients_full, phase);
      phase ^= 1;
      const int offset = (block - task.item.block) * kFuxiRows;
      TGR_UNROLL
      for (int round = 0; round < 2; ++round) {
        const int diagonal = thread + round * kWorkers;
        if (diagonal >= kFuxiRows) continue;
        float sum = 0;
        float next = 0;
#pragma unroll 8
        for (int row = 0; row < rows; ++row) {
          const int key = (row + diagonal) % kFuxiRows;
          const int at = key / 64 * kPanelBytes + row * 128 + ((key % 64 * 2) ^ (row % 8 << 4));
          const std::uint32_t bits = *reinterpret_cast<const std::uint16_t*>(gradients + at);
          const float x = __uint_as_float(bits << 16);
          if (row + diagonal < kFuxiRows) {
            sum += x;
          } else {
            next += x;
          }
        }
        if (offset + diagonal <= 0) {
          args.position_sums.add(0, -offset - diagonal, sum + carry[round]);
        }
        carry[round] = next;
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(&shared.gradients_empty);
    }
    TGR_UNROLL
    for (int round = 0; round < 2; ++round) {
      const int diagonal = thread + round * kWorkers;
      const int at = diagonal + (blocks.last - 1 - task.item.block) * kFuxiRows;
      if (diagonal < kFuxiRows && -at < args.maps.position_length) {
        args.position_sums.add(0, -at, carry[round]);
      }
    }
  }
}

// A row's walk through its keys from the newest to the oldest: its present bucket and the sum
// there.
struct BucketWalk {
  const ExactSums& sums;
  int copy;
  int bucket = -1;
  std::uint32_t high = 0;  // where the bucket ends
  float sum = 0;

  __device__ __forceinline__ void go_to(int next) {
    if (next == bucket) return;
    if (bucket >= 0) sums.add(copy, bucket, sum);
    sum = 0;
    bucket = next;
  }
};

// Thread t takes query t of a tile.
__device__ __forceinline__ void sum_buckets(const FuxiTablesArgs& args, const char* gradients,
                                            Shared& shared) {
  const int row = static_cast<int>(threadIdx.x) - 384;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RingPlace<FuxiTaskRing::kSlots> slot;
  int phase = 0;
  // One for each lane: adds to one address wait for each other.
  const int copy = static_cast<int>(blockIdx.x * 32) % kFuxiTimeCopies + lane;
  for (;;) {
    const FuxiTask task = next_task(shared, slot);
    if (task.item.length < 0) break;
    const FuxiItem& item = task.item;
    const int query = item.block * kFuxiRows + row;
    const bool there = query < item.length;
    const std::int64_t padded = fuxi_padded_row(item);
    // So that gaps come out one too large, as the table wants them.
    const std::uint32_t time = __ldg(args.maps.query_times + padded + query) + 1;
    BucketWalk walk{args.time_sums, copy};
    const KeyBlocks blocks(args.work, task);
    for (int block = blocks.first; block >= blocks.last; --block) {
      const int first = block * kFuxiRows;
      // Key times 4 lane and up, handed round when they are wanted.
      const uint4 times =
          __ldg(reinterpret_cast<const uint4*>(args.maps.key_times + padded + first) + lane);
      barrier_wait(&shared.gradients_full, phase);
      phase ^= 1;
      const auto load = [&](int chunk) {
        return *reinterpret_cast<const uint4*>(gradients + chunk / 8 * kPanelBytes + row * 128 +
                                               (chunk % 8 ^ row % 8) * 16);
      };
      uint4 ahead = load(kFuxiRows / 8 - 1);
#pragma unroll 1
      for (int chunk = kFuxiRows / 8 - 1; chunk >= 0; --chunk) {
        const std::uint32_t words[4] = {ahead.x, ahead.y, ahead.z, ahead.w};
        if (chunk > 0) ahead = load(chunk - 1);
        float x[8];
        TGR_UNROLL
        for (int i = 0; i < 8; ++i) {
          x[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
        }
        const std::uint32_t oldest = __shfl_sync(~0u, times.x, 2 * chunk);
        // In this tile's future, if it is the row's own.
        const int seen = query - first - 8 * chunk;
        if (task.usable && __all_sync(~0u, !there || (seen >= 7 && time - oldest < walk.high))) {
          walk.sum += ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
          continue;
        }
        if (task.usable) {
          std::uint32_t key_times[8];
          TGR_UNROLL
          for (int i = 0; i < 8; ++i) {
            const std::uint32_t mine =
                i % 4 < 2 ? (i % 2 == 0 ? times.x : times.y) : (i % 2 == 0 ? times.z : times.w);
            key_times[i] = __shfl_sync(~0u, mine, 2 * chunk + i / 4);
          }
          if (!there) continue;
          TGR_UNROLL
          for (int i = 7; i >= 0; --i) {
            if (i > seen) continue;
            const std::uint32_t gap = time - key_times[i];
            if (gap >= walk.high) {
              const int bin = GapTable::bin_of(gap);
              const uint2 found = shared.table.bins[bin];
              const bool next = gap >= found.x;
              walk.go_to(static_cast<int>(found.y) + next);
              walk.high = next ? shared.table.after[bin] : found.x;
            }
            walk.sum += x[i];
          }
        } else if (there) {
          TGR_UNROLL
          for (int i = 7; i >= 0; --i) {
            if (i > seen) continue;
            const int key = item.first_row + first + 8 * chunk + i;
            walk.go_to(any_gap_bucket(__ldg(args.maps.exact_query_times + item.first_row + query),
                                      __ldg(args.maps.exact_key_times + key)));
            walk.sum += x[i];
          }
        }
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(&shared.gradients_empty);
    }
    // Sums of rows past the end are of no row.
    if (there) walk.go_to(-1);
  }
}

template <bool kPosition, bool kTime>
__global__ void __launch_bounds__(kThreads, 1)
    tables_kernel(const __grid_constant__ FuxiTablesArgs args) {
  extern __shared__ char raw[];
  char* tiles = raw + (-static_cast<int>(shared_address(raw)) & 1023);
  char* gradients = tiles + kStages * kStageBytes;
  __shared__ Shared shared;
  const auto thread = static_cast<int>(threadIdx.x);
  if constexpr (kTime) {
    shared.table.fill(thread, kThreads,
                      [](int bucket) { return static_cast<std::uint32_t>(bucket); });
  }
  if (thread == 0) {
    // Warps without a table to sum take no part.
    constexpr int kSumming = (kPosition ? kPositionWarps : 0) + (kTime ? kTimeWarps : 0);
    shared.tasks.init(kMultiplyWarps + kSumming);
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&shared.full[i], 1);
      barrier_init(&shared.empty[i], kMultiplyWarps);
    }
    barrier_init(&shared.gradients_full, kMultiplyWarps);
    barrier_init(&shared.gradients_empty, kSumming);
    barrier_init_fence();
  }
  __syncthreads();
  if (thread >= 384) {
    give_registers<96>();
    if constexpr (kTime) {
      sum_buckets(args, gradients + kGradientBytes, shared);
    }
  } else if (thread >= 256) {
    give_registers<56>();
    if (thread == 256) produce(args, kPosition, kTime, tiles, shared);
    if constexpr (kPosition) {
      if (thread >= 288) sum_diagonals(args, gradients, shared);
    }
  } else {
    take_registers<176>();
    multiply<kPosition, kTime>(args, tiles, gradients, shared);
  }
}

template <bool kPosition, bool kTime>
void launch(const FuxiTablesArgs& args, cudaStream_t stream) {
  const auto kernel = tables_kernel<kPosition, kTime>;
  static const int blocks = resident_blocks(kernel, kThreads, kSharedBytes);
  kernel<<<blocks, kThreads, kSharedBytes, stream>>>(args);
  check(cudaGetLastError(), "fuxi table gradients");
}

}  // namespace

void launch_fuxi_table_gradients(const FuxiTablesArgs& args, cudaStream_t stream) {
  const bool position = args.position_sums.words != nullptr;
  const bool time = args.time_sums.words != nullptr;
  if (position && time) {
    launch<true, true>(args, stream);
  } else if (position) {
    launch<true, false>(args, stream);
  } else if (time) {
    launch<false, true>(args, stream);
  }
}

}  // namespace turbogr::cuda
