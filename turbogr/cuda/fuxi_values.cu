// Shared maps times values. A block is one producer warp and two warpgroups of 64 rows each; it
// takes tasks of 128 rows and 256 columns of all heads (forward: of one map) from a list until the
// list is empty. The producer brings tiles of 64 rows to multiply; a consumer makes the map's tile
// in registers while the tensor cores work on the tile before. Bound by the tensor cores, the time
// map by shared memory as well.
#include <cuda_bf16.h>

#include "turbogr/cuda/attention_tile.cuh"
#include "turbogr/cuda/check.cuh"
#include "turbogr/cuda/fuxi_map_tile.cuh"
#include "turbogr/cuda/wgmma.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kStages = 6;
constexpr int kColumns = 64 * kFuxiPanels;
constexpr int kStep = 64;  // rows of a tile of the source
constexpr int kPanelBytes = kStep * 128;
constexpr int kTileBytes = kFuxiPanels * kPanelBytes;
constexpr int kTimeBytes = kStep * 4;
constexpr int kWarps = 8;
constexpr int kThreads = 384;
constexpr int kSharedBytes = 1024 + kStages * (kTileBytes + kTimeBytes);

struct Shared {
  FuxiTaskRing tasks;
  std::uint64_t full[kStages], empty[kStages];
  GapTable table;
};

// What a task runs through: tiles of the source, and which map each is multiplied with. Forward:
// the keys of one map, newest first; backward: the queries, oldest first, each with both maps.
template <bool kBackward>
struct Steps {
  int first;  // tile of the source
  int maps;   // backward: how many there are
  int map;    // the only one
  int count;

  __device__ Steps(const FuxiValuesArgs& args, const FuxiTask& task) {
    const int last = (task.item.length - 1) / kStep;
    const int block = 2 * task.item.block;
    if (kBackward) {
      maps = args.maps.has(kFuxiPosition) + args.maps.has(kFuxiTime);
      map = args.maps.has(kFuxiPosition) ? kFuxiPosition : kFuxiTime;
      first = block;
      count = (last - block + 1) * maps;
    } else {
      maps = 1;
      map = task.part / args.groups;
      first = min(block + 1, last);
      count = args.maps.has(map) ? first + 1 : 0;
    }
  }
  __device__ __forceinline__ int tile(int step) const {
    if (!kBackward) return first - step;
    return first + (maps == 2 ? step / 2 : step);
  }
  __device__ __forceinline__ int map_of(int step) const {
    return kBackward && maps == 2 ? step % 2 : map;
  }
  // Steps at the beginning that only the other warpgroup needs; all, if the group is past the end.
  __device__ __forceinline__ int skipped(const FuxiTask& task, int group) const {
    const int own = 2 * task.item.block + group;
    if (own * kStep >= task.item.length) return count;
    return min(count, kBackward ? group * maps : first - own);
  }
};

template <bool kBackward>
__device__ FuxiTask turned(FuxiTask task) {
  // Backward the first rows are seen by most.
  if (kBackward) {
    task.item.block = (task.item.length + kFuxiRows - 1) / kFuxiRows - 1 - task.item.block;
  }
  return task;
}

template <bool kBackward>
__device__ __forceinline__ void produce(const FuxiValuesArgs& args, char* tiles,
                                        std::uint32_t* times, Shared& shared) {
  RingPlace<kStages> place;
  RingPlace<FuxiTaskRing::kSlots> slot;
  FuxiSource source(args.work);
  for (;;) {
    const FuxiTask task = turned<kBackward>(source.take());
    barrier_wait(&shared.tasks.empty[slot.index], slot.phase ^ 1);
    shared.tasks.task[slot.index] = task;
    barrier_arrive(&shared.tasks.full[slot.index]);
    slot.advance();
    if (task.item.length < 0) break;
    const Steps<kBackward> steps(args, task);
    const int panel = task.part % args.groups * kFuxiPanels;
    int columns[kFuxiPanels];
    int heads[kFuxiPanels];
    TGR_UNROLL
    for (int p = 0; p < kFuxiPanels; ++p) {
      columns[p] = (panel + p) % args.panels_per_head * 64;
      heads[p] = (panel + p) / args.panels_per_head;
    }
    const std::uint32_t* column_times =
        (kBackward ? args.maps.query_times : args.maps.key_times) + fuxi_padded_row(task.item);
    for (int step = 0; step < steps.count; ++step) {
      const int map = steps.map_of(step);
      const int row = steps.tile(step) * kStep;
      std::uint64_t* full = &shared.full[place.index];
      barrier_wait(&shared.empty[place.index], place.phase ^ 1);
      barrier_expect(full, kTileBytes + (map == kFuxiTime ? kTimeBytes : 0));
      TGR_UNROLL
      for (int p = 0; p < kFuxiPanels; ++p) {
        load_box(tiles + place.index * kTileBytes + p * kPanelBytes, &args.source[map], full,
                 columns[p], heads[p], task.item.first_row + row);
      }
      if (map == kFuxiTime) {
        load_bytes(times + place.index * kStep, column_times + row, kTimeBytes, full);
      }
      place.advance();
    }
  }
  source.finish();
}

// Writes the sums as bf16, 16 bytes a lane; backward adds them to what is there.
template <bool kAdd>
__device__ __forceinline__ void store_sums(const float (&sums)[kColumns / 2],
                                           const FuxiValuesArgs& args, __nv_bfloat16* to, int rows,
                                           int first_panel) {
  constexpr int kPieces = kColumns / 16;  // of 16 bytes, of a lane
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
  uint4* at[kFuxiPanels];    // the first piece of a panel
  int columns[kFuxiPanels];  // of a panel, from this lane's first on; none past the last head
  TGR_UNROLL
  for (int panel = 0; panel < kFuxiPanels; ++panel) {
    const int head = (first_panel + panel) / args.panels_per_head;
    const int column = (first_panel + panel) % args.panels_per_head * 64 + 8 * (lane % 4);
    at[panel] =
        reinterpret_cast<uint4*>(to + row * args.to_stride + head * args.to_head_stride + column);
    columns[panel] = head < args.heads ? args.width - column : 0;
  }
  const auto half_of = [](int piece) { return piece % 2; };
  const auto group_of = [](int piece) { return piece / 2; };  // of 32 columns
  const auto there = [&](int piece) {
    return row + 8 * half_of(piece) < rows && group_of(piece) % 2 * 32 < columns[piece / 4];
  };
  const auto address = [&](int piece) {
    return at[piece / 4] + half_of(piece) * args.to_stride + group_of(piece) % 2 * 4;
  };
  // All loads before the first use.
  [[maybe_unused]] uint4 old[kAdd ? kPieces : 1];
  if constexpr (kAdd) {
    TGR_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      old[piece] = there(piece) ? *address(piece) : make_uint4(0, 0, 0, 0);
    }
  }
  TGR_UNROLL
  for (int piece = 0; piece < kPieces; ++piece) {
    std::uint32_t r[4] = {0, 0, 0, 0};
    if constexpr (kAdd) {
      r[0] = old[piece].x;
      r[1] = old[piece].y;
      r[2] = old[piece].z;
      r[3] = old[piece].w;
      transpose_quad(r);
    }
    TGR_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int sum = 4 * (4 * group_of(piece) + i) + 2 * half_of(piece);
      r[i] = pack_bf16(sums[sum] + __uint_as_float(r[i] << 16),
                       sums[sum + 1] + __uint_as_float(r[i] & 0xffff0000u));
    }
    transpose_quad(r);
    if (there(piece)) *address(piece) = make_uint4(r[0], r[1], r[2], r[3]);
  }
}

template <bool kBackward>
__device__ __forceinline__ void consume(const FuxiValuesArgs& args, char* tiles,
                                        const std::uint32_t* times, Shared& shared) {
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int thread_row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
  const Operand<kColumns> operand(tiles, kPanelBytes);
  RingPlace<kStages> place;
  RingPlace<FuxiTaskRing::kSlots> slot;
  float sums[kColumns / 2];
  MapTile even;
  MapTile odd;
  TimeRows rows{};

  // Every warp frees a stage for itself: it reads the times by itself.
  const auto release = [&](int stage) {
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[stage]);
  };
  const auto multiply = [&](MapTile& tile, int stage) {
    pin(tile);
    wgmma_fence();
    TGR_UNROLL
    for (int step = 0; step < kStep / 16; ++step) {
      Wgmma<kColumns>::template rs<1>(sums, tile + 4 * step,
                                      operand.at(stage * kTileBytes + row_step<kColumns>(step)), 1);
    }
    wgmma_commit();
  };

  for (;;) {
    barrier_wait(&shared.tasks.full[slot.index], slot.phase);
    const FuxiTask task = shared.tasks.task[slot.index];
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.tasks.empty[slot.index]);
    slot.advance();
    if (task.item.length < 0) break;
    const Steps<kBackward> steps(args, task);
    const int own = 2 * task.item.block + group;  // tile of this group's rows
    const int row = own * kStep + thread_row;
    int step = 0;
    for (const int skipped = steps.skipped(task, group); step < skipped; ++step) {
      barrier_wait(&shared.full[place.index], place.phase);
      release(place.index);
      place.advance();
    }

    const auto make = [&](MapTile& tile) {
      barrier_wait(&shared.full[place.index], place.phase);
      const int column = steps.tile(step) * kStep;
      const bool diagonal = steps.tile(step) == own;
      if (steps.map_of(step) == kFuxiPosition) {
        make_position_tile<kBackward>(tile, args.maps, row, column);
      } else if (rows.usable) {
        make_time_tile<kBackward>(tile, shared.table, rows, times + place.index * kStep, diagonal);
      } else {
        make_any_time_tile<kBackward>(tile, args.maps, task.item, row, column);
      }
      if (diagonal || (kBackward && column + kStep > task.item.length)) {
        mask_tile<kBackward>(tile, row - column, task.item.length - column);
      }
    };

    TGR_UNROLL
    for (int i = 0; i < kColumns / 2; ++i) sums[i] = 0;
    if (step < steps.count) {
      rows.start<kBackward>(args.maps, task.item, row);
      int before = -1;  // stage of the product that is still running
      make(even);
      for (;;) {
        multiply(even, place.index);
        wgmma_wait<1>();
        pin(odd);
        if (before >= 0) release(before);
        before = place.index;
        place.advance();
        if (++step == steps.count) break;
        make(odd);
        multiply(odd, place.index);
        wgmma_wait<1>();
        pin(even);
        release(before);
        before = place.index;
        place.advance();
        if (++step == steps.count) break;
        make(even);
      }
      wgmma_wait<0>();
      pin(sums);
      pin(even);
      pin(odd);
      release(before);
    }
    const int valid = task.item.length - own * kStep;
    if (valid > 0) {
      auto* to = static_cast<__nv_bfloat16*>(args.to) +
                 static_cast<std::int64_t>(task.item.first_row + own * kStep) * args.to_stride +
                 (kBackward ? 0 : steps.map * args.to_map_stride);
      store_sums<kBackward>(sums, args, to, valid, task.part % args.groups * kFuxiPanels);
    }
  }
}

template <bool kBackward>
__global__ void __launch_bounds__(kThreads, 1)
    values_kernel(const __grid_constant__ FuxiValuesArgs args) {
  extern __shared__ char raw[];
  char* tiles = raw + (-static_cast<int>(shared_address(raw)) & 1023);
  auto* times = reinterpret_cast<std::uint32_t*>(tiles + kStages * kTileBytes);
  __shared__ Shared shared;
  if (args.maps.time != nullptr) {
    shared.table.fill(static_cast<int>(threadIdx.x), kThreads, [&](int bucket) {
      return pack_bf16(args.maps.time[bucket], args.maps.time[bucket + 1]);
    });
  }
  if (threadIdx.x == 0) {
    shared.tasks.init(kWarps);
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&shared.full[i], 1);
      barrier_init(&shared.empty[i], kWarps);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x >= 256) {
    give_registers<56>();
    if (threadIdx.x == 256) produce<kBackward>(args, tiles, times, shared);
  } else {
    take_registers<224>();
    consume<kBackward>(args, tiles, times, shared);
  }
}

template <bool kBackward>
void launch(const FuxiValuesArgs& args, cudaStream_t stream) {
  const auto kernel = values_kernel<kBackward>;
  static const int blocks = resident_blocks(kernel, kThreads, kSharedBytes);
  kernel<<<blocks, kThreads, kSharedBytes, stream>>>(args);
  check(cudaGetLastError(), "fuxi maps");
}

}  // namespace

void launch_fuxi_forward(const FuxiValuesArgs& args, cudaStream_t stream) {
  launch<false>(args, stream);
}
void launch_fuxi_values_gradient(const FuxiValuesArgs& args, cudaStream_t stream) {
  launch<true>(args, stream);
}

}  // namespace turbogr::cuda
