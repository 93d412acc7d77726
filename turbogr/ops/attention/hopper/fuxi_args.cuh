// What the kernels of FuXi's shared maps take, and how they hand out work. The position and the
// time map are the same for all heads, so their products run over the columns of all heads side by
// side. Columns are counted in panels of 64 of one head; a head takes whole panels, the last one
// filled up with zeros by the copy engine.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "turbogr/cuda/hopper.cuh"
#include "turbogr/ops/attention/hopper/exact_sums.cuh"
#include "turbogr/ops/attention/hopper/time_buckets.cuh"

namespace turbogr::cuda {

inline constexpr int kFuxiRows = 128;    // of a tile of results, and of the padded time arrays
inline constexpr int kFuxiMargin = 160;  // of the position weights
inline constexpr int kFuxiPanels = 4;    // of a tile of results
inline constexpr int kFuxiPosition = 0;  // numbers of the maps
inline constexpr int kFuxiTime = 1;

inline constexpr int kFuxiMaxParts = 8;  // of an item, in the kernel of the table gradients

// Copies of the sums of time gradients: one for each lane of odd and of even blocks.
inline constexpr int kFuxiTimeCopies = 64;

// kFuxiRows rows of one sequence.
struct alignas(16) FuxiItem {
  int first_row;  // of the sequence
  int length;     // of the sequence
  int sequence;
  int block;  // which rows
};

// An item and which part of its results (group of columns, map); length < 0: no more work.
struct FuxiTask {
  FuxiItem item;
  int part;
  bool usable;  // the sequence's relative times
};

struct FuxiWork {
  const FuxiItem* items;
  const int* num_items;
  // [0]: tasks handed out after the first of each block, [1]: blocks that are done. The last block
  // sets both back to 0.
  int* next;
  int parts;  // tasks an item
};

struct FuxiMaps {
  const float* position;  // entry of offset 0: key j of query i has entry j - i; null: none
  int position_length;    // S, or N if that is less: offsets from 1 - S up to 0 are there
  // The same in bf16, each with that of its neighbour in the next column; kFuxiMargin more on both
  // sides, of zeros: a tile reaches 71 past the sequence's offsets, the tile after the last 64
  // more.
  const std::uint32_t* pairs;
  const float* time;  // [129]; null: none
  // Sequence b starts at kFuxiRows * (offset / kFuxiRows + b). Relative to the sequence's first key
  // time; to be used where usable[sequence] only.
  const std::uint32_t* key_times;
  const std::uint32_t* query_times;
  const int* usable;  // times are sorted and span less than 2^32
  const std::int64_t* exact_key_times;
  const std::int64_t* exact_query_times;

  __host__ __device__ bool has(int map) const {
    return map == kFuxiPosition ? position != nullptr : time != nullptr;
  }
};

__device__ __forceinline__ std::int64_t fuxi_padded_row(const FuxiItem& item) {
  return static_cast<std::int64_t>(item.first_row / kFuxiRows + item.sequence) * kFuxiRows;
}

// Map times values: forward out_map = A V for each map, backward dv += sum over maps of A^T dout.
struct FuxiValuesArgs {
  CUtensorMap source[2];  // of each map: the rows that are multiplied
  FuxiWork work;
  FuxiMaps maps;
  int heads;
  int width;            // of a head
  int panels_per_head;  // of 64 columns
  int groups;           // of kFuxiPanels panels
  void* to;
  std::int64_t to_stride;
  int to_head_stride;
  int to_map_stride;
  bool never;  // false, which the compiler does not know
};

// Gradients of the tables: sums of dout_map V^T over diagonals and buckets.
struct FuxiTablesArgs {
  CUtensorMap dout[2];
  CUtensorMap v;
  FuxiWork work;
  FuxiMaps maps;
  int panels_per_head;
  int panels;               // of all heads
  ExactSums position_sums;  // by query - key; words null: not wanted
  ExactSums time_sums;      // by bucket; likewise
};

struct FuxiPlanArgs {
  const std::int64_t* offsets;
  int batch;
  FuxiItem* items;
  int* num_items;
  // Null where there is no time map.
  const std::int64_t* key_times;
  const std::int64_t* query_times;
  int* usable;
  std::uint32_t* relative_key_times;
  std::uint32_t* relative_query_times;
};

// Rows of [tokens, heads, width] from one place to another; the widths are multiples of 8.
struct FuxiCopyArgs {
  const void* from;
  void* to;
  std::int64_t from_stride, to_stride;
  int from_head_stride, to_head_stride;
  int heads, width;
  std::int64_t tokens;
};

void launch_fuxi_plan(const FuxiPlanArgs& args, cudaStream_t stream);
// Fills maps.pairs; columns are keys forward and queries backward.
void launch_fuxi_pairs(const FuxiMaps& maps, bool backward, cudaStream_t stream);
void launch_fuxi_copy(const FuxiCopyArgs& args, cudaStream_t stream);
void launch_fuxi_forward(const FuxiValuesArgs& args, cudaStream_t stream);
void launch_fuxi_values_gradient(const FuxiValuesArgs& args, cudaStream_t stream);
void launch_fuxi_table_gradients(const FuxiTablesArgs& args, cudaStream_t stream);

// Tasks on their way from the producer, which takes them, to the warps that do them.
struct FuxiTaskRing {
  static constexpr int kSlots = 2;
  std::uint64_t full[kSlots], empty[kSlots];
  FuxiTask task[kSlots];

  __device__ void init(int warps) {
    for (int i = 0; i < kSlots; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], warps);
    }
  }
};

// One thread of a block asks; the first task is the block's own number, so that nothing waits at
// the start.
struct FuxiSource {
  const FuxiWork& work;
  const int* usable;  // null: there is no time map
  int count;
  int next;

  __device__ FuxiSource(const FuxiWork& w, const FuxiMaps& maps)
      : work(w),
        usable(maps.time != nullptr ? maps.usable : nullptr),
        count(*w.num_items * w.parts),
        next(static_cast<int>(blockIdx.x)) {}

  __device__ FuxiTask take() {
    if (next >= count) return {{0, -1, 0, 0}, 0, false};
    FuxiTask task{work.items[next / work.parts], next % work.parts, false};
    if (usable != nullptr) task.usable = usable[task.item.sequence] != 0;
    next = static_cast<int>(gridDim.x) + atomicAdd(work.next, 1);
    return task;
  }
  // After the last take: the last block of the grid leaves the counters as it found them.
  __device__ void finish() {
    __threadfence();
    if (atomicAdd(work.next + 1, 1) == static_cast<int>(gridDim.x) - 1) {
      work.next[0] = 0;
      work.next[1] = 0;
    }
  }
};

// Looks gaps below 2^32 - 2 up by the exponent and three bits of the mantissa of the float of gap +
// 1: a bin so small that at most one bucket begins inside. All gaps here are one too large, so that
// none is zero.
struct GapTable {
  static constexpr int kBins = 32 * 8;
  // x: where the next bucket begins, y: what is known of the bin's first bucket and the next.
  uint2 bins[kBins];
  std::uint32_t after[kBins];  // where the bucket after the next begins

  // known(bucket): what y holds for a bin that begins in `bucket`.
  template <class Known>
  __device__ void fill(int thread, int threads, Known known) {
    for (int i = thread; i < kBins; i += threads) {
      const std::uint64_t start = (8 + static_cast<std::uint64_t>(i % 8) << i / 8) >> 3;
      const int bucket = any_gap_bucket(static_cast<std::int64_t>(start - 1), 0);
      bins[i] = make_uint2(begin_of(bucket + 1), known(bucket));
      after[i] = begin_of(bucket + 2);
    }
  }
  static __device__ std::uint32_t begin_of(int bucket) {
    const std::uint64_t gap = kTimeBucketTables.first_gap[bucket] + 1;
    return gap < ~0u ? static_cast<std::uint32_t>(gap) : ~0u;
  }
  static __device__ __forceinline__ int bin_of(std::uint32_t gap) {
    return static_cast<int>(__float_as_uint(__uint2float_rz(gap)) >> 20) - 127 * 8;
  }
};

}  // namespace turbogr::cuda
