// Shared maps times values. A block is one producer warp and two warpgroups of 64 rows each; it
// takes tasks of 128 rows and 256 columns of all heads (forward: of one map) from a list until the
// list is empty. The producer brings tiles of 64 rows to multiply; a consumer makes the map's tile
// in registers while the tensor cores work on the tile before. Bound by the tensor cores, the time
// map by shared memory as well.
#include <cuda_bf16.h>

#include "turbogr/cuda/check.cuh"
#include "turbogr/cuda/wgmma.cuh"
#include "turbogr/ops/attention/hopper/attention_tile.cuh"
#include "turbogr/ops/attention/hopper/fuxi_map_tile.cuh"
#include "turbogr/ops/attention/hopper/fuxi_results.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kStages = 6;
constexpr int kStep = 64;  // rows of a tile of the source
constexpr int kPanelBytes = kStep * 128;
constexpr int kTileBytes = kFuxiPanels * kPanelBytes;
constexpr int kTimeBytes = kStep * 4;
constexpr int kWarps = 8;
constexpr int kThreads = 384;
constexpr int kSharedBytes =
    1024 + kStages * (kTileBytes + kTimeBytes) + kWarps * kFuxiStagingBytes;

struct Shared {
  alignas(16) std::uint32_t row_times[FuxiTaskRing::kSlots][kFuxiRows];
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
  FuxiSource source(args.work, args.maps);
  for (;;) {
    const FuxiTask task = turned<kBackward>(source.take());
    barrier_wait(&shared.tasks.empty[slot.index()], slot.phase() ^ 1);
    shared.tasks.task[slot.index()] = task;
    if (task.item.length < 0) {
      barrier_arrive(&shared.tasks.full[slot.index()]);
      break;
    }
    const Steps<kBackward> steps(args, task);
    if (args.maps.time != nullptr) {
      barrier_expect(&shared.tasks.full[slot.index()], kFuxiRows * 4);
      load_bytes(shared.row_times[slot.index()],
                 (kBackward ? args.maps.key_times : args.maps.query_times) +
                     fuxi_padded_row(task.item) + task.item.block * kFuxiRows,
                 kFuxiRows * 4, &shared.tasks.full[slot.index()]);
    } else {
      barrier_arrive(&shared.tasks.full[slot.index()]);
    }
    slot.advance();
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
      std::uint64_t* full = &shared.full[place.index()];
      barrier_wait(&shared.empty[place.index()], place.phase() ^ 1);
      barrier_expect(full, kTileBytes + (map == kFuxiTime ? kTimeBytes : 0));
      TGR_UNROLL
      for (int p = 0; p < kFuxiPanels; ++p) {
        load_box(tiles + place.index() * kTileBytes + p * kPanelBytes, &args.source[map], full,
                 columns[p], heads[p], task.item.first_row + row);
      }
      if (map == kFuxiTime) {
        load_bytes(times + place.index() * kStep, column_times + row, kTimeBytes, full);
      }
      place.advance();
    }
  }
  source.finish();
}

// kEven, kOdd: backward, the maps of even and odd steps.
template <bool kBackward, int kEven, int kOdd>
__device__ __forceinline__ void consume(const FuxiValuesArgs& args, char* tiles,
                                        const std::uint32_t* times, char* staging, Shared& shared) {
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int thread_row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
  const Operand<kFuxiColumns> operand(tiles, kPanelBytes);
  RingPlace<kStages> place;
  RingPlace<FuxiTaskRing::kSlots> slot;
  float sums[kFuxiColumns / 2];
  MapTile even = {};
  MapTile odd = {};
  PositionAhead ahead;
  TimeRows rows;

  // Every warp frees a stage for itself: it reads the times by itself.
  const auto release = [&](int stage) {
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[stage]);
  };
  // After a wait. The tensor cores read a tile until then, but the assembler takes its registers
  // for free as soon as the product is issued: a use that never comes keeps them.
  const auto hold = [&](MapTile& tile) {
    pin(tile);
    if (args.never) {
      TGR_UNROLL
      for (int i = 0; i < 16; ++i) {
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared_address(staging)), "r"(tile[i]));
      }
    }
  };
  const auto multiply = [&](MapTile& tile, int stage) {
    pin(tile);
    wgmma_fence();
    TGR_UNROLL
    for (int step = 0; step < kStep / 16; ++step) {
      Wgmma<kFuxiColumns>::template rs<1>(
          sums, tile + 4 * step, operand.at(stage * kTileBytes + row_step<kFuxiColumns>(step)), 1);
    }
    wgmma_commit();
  };

  for (;;) {
    barrier_wait(&shared.tasks.full[slot.index()], slot.phase());
    const FuxiTask task = shared.tasks.task[slot.index()];
    rows.start<kBackward>(shared.row_times[slot.index()], 64 * group + thread_row);
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.tasks.empty[slot.index()]);
    slot.advance();
    if (task.item.length < 0) break;
    const Steps<kBackward> steps(args, task);
    const int own = 2 * task.item.block + group;  // tile of this group's rows
    const int row = own * kStep + thread_row;
    int step = 0;
    for (const int skipped = steps.skipped(task, group); step < skipped; ++step) {
      barrier_wait(&shared.full[place.index()], place.phase());
      release(place.index());
      place.advance();
    }

    // Always, even past the last step: a condition would make it wait for the weights.
    const auto load_ahead = [&](int of_step) {
      ahead.load<kBackward>(args.maps, row, steps.tile(of_step) * kStep);
    };
    const auto make = [&]<int kMap>(MapTile& tile) {
      barrier_wait(&shared.full[place.index()], place.phase());
      const int column = steps.tile(step) * kStep;
      const bool diagonal = steps.tile(step) == own;
      if constexpr (kMap == kFuxiPosition) {
        ahead.make(tile);
        pin(tile);  // taken out before the next ones come in, else they would be waited for
        load_ahead(step + steps.maps);
      } else if (task.usable) {
        make_time_tile<kBackward>(tile, shared.table, rows, times + place.index() * kStep,
                                  diagonal);
      } else {
        make_any_time_tile<kBackward>(tile, args.maps, task.item, row, column);
      }
      if (diagonal || (kBackward && column + kStep > task.item.length)) {
        mask_tile<kBackward>(tile, row - column, task.item.length - column);
      }
    };
    const int warp_row = own * kStep + static_cast<int>(threadIdx.x) / 32 % 4 * 16;
    ResultPlaces places;
    const auto find_places = [&] {
      auto* to = static_cast<__nv_bfloat16*>(args.to) +
                 static_cast<std::int64_t>(task.item.first_row + warp_row) * args.to_stride +
                 (kBackward ? 0 : steps.map * args.to_map_stride);
      places.find(args, to, task.item.length - warp_row, task.part % args.groups * kFuxiPanels);
      if constexpr (kBackward) places.prefetch(args.to_stride);
    };
    // All steps of the task; even and odd ones may be of different maps.
    const auto run = [&]<int kFirst, int kSecond>() {
      if constexpr (kFirst == kFuxiPosition) load_ahead(step);
      int before = -1;  // stage of the product that is still running
      make.template operator()<kFirst>(even);
      for (;;) {
        multiply(even, place.index());
        wgmma_wait<1>();
        hold(odd);
        if (before >= 0) release(before);
        before = place.index();
        place.advance();
        if (++step == steps.count) break;
        make.template operator()<kSecond>(odd);
        multiply(odd, place.index());
        wgmma_wait<1>();
        hold(even);
        release(before);
        before = place.index();
        place.advance();
        if (++step == steps.count) break;
        make.template operator()<kFirst>(even);
      }
      find_places();
      wgmma_wait<0>();
      pin(sums);
      hold(even);
      hold(odd);
      release(before);
    };

    TGR_UNROLL
    for (int i = 0; i < kFuxiColumns / 2; ++i) sums[i] = 0;
    if (step < steps.count) {
      if constexpr (kBackward) {
        run.template operator()<kEven, kOdd>();
      } else if (steps.map == kFuxiPosition) {
        run.template operator()<kFuxiPosition, kFuxiPosition>();
      } else {
        run.template operator()<kFuxiTime, kFuxiTime>();
      }
    } else {
      find_places();
    }
    if (warp_row < task.item.length) {
      store_sums<kBackward>(sums, places, args.to_stride, staging);
    }
  }
}

template <bool kBackward, int kEven, int kOdd>
__global__ void __launch_bounds__(kThreads, 1)
    values_kernel(const __grid_constant__ FuxiValuesArgs args) {
  extern __shared__ char raw[];
  char* tiles = raw + (-static_cast<int>(shared_address(raw)) & 1023);
  char* staging = tiles + kStages * kTileBytes;
  auto* times = reinterpret_cast<std::uint32_t*>(staging + kWarps * kFuxiStagingBytes);
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
    give_registers<40>();
    if (threadIdx.x == 256) produce<kBackward>(args, tiles, times, shared);
  } else {
    take_registers<232>();
    consume<kBackward, kEven, kOdd>(args, tiles, times,
                                    staging + threadIdx.x / 32 * kFuxiStagingBytes, shared);
  }
}

template <bool kBackward, int kEven, int kOdd>
void launch(const FuxiValuesArgs& args, cudaStream_t stream) {
  const auto kernel = values_kernel<kBackward, kEven, kOdd>;
  static const int blocks = resident_blocks(kernel, kThreads, kSharedBytes);
  kernel<<<blocks, kThreads, kSharedBytes, stream>>>(args);
  check(cudaGetLastError(), "fuxi maps");
}

}  // namespace

void launch_fuxi_forward(const FuxiValuesArgs& args, cudaStream_t stream) {
  launch<false, kFuxiPosition, kFuxiTime>(args, stream);
}
void launch_fuxi_values_gradient(const FuxiValuesArgs& args, cudaStream_t stream) {
  if (!args.maps.has(kFuxiTime)) {
    launch<true, kFuxiPosition, kFuxiPosition>(args, stream);
  } else if (!args.maps.has(kFuxiPosition)) {
    launch<true, kFuxiTime, kFuxiTime>(args, stream);
  } else {
    launch<true, kFuxiPosition, kFuxiTime>(args, stream);
  }
}

}  // namespace turbogr::cuda
