#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/attention_tile.cuh"
#include "turbogr/ops/attention/hopper/table_gradient_positions.cuh"
#include "turbogr/ops/attention/hopper/table_gradient_times.cuh"
#include "turbogr/ops/attention/hopper/table_gradient_units.cuh"

namespace turbogr::cuda {
namespace {

using namespace table_gradients;

constexpr int kThreads = kUnit;
constexpr int kWarps = kThreads / 32;
constexpr int kStages = 2;
constexpr int kBlocks = 6;  // a multiprocessor

struct Shared {
  Stage stages[kStages];
  std::uint64_t arrived[kStages];
  ShortGapTables tables;
  // A walk's sums over time buckets, one copy a thread: no two threads ever add to the same.
  float bins[kWarps][kBinRows][32];
};

// Two warps, each with 32 keys of a unit. The units of a walk have the same differences of
// positions: they are added up first. Limited by bandwidth.
__global__ void __launch_bounds__(kThreads, kBlocks)
    table_gradients_kernel(PairArgs pairs, BiasArgs bias, Walks walks, int heads, int* next_walk) {
  alignas(128) extern __shared__ char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  const int thread = static_cast<int>(threadIdx.x);
  float* own_bins = &shared.bins[thread / 32][0][thread % 32];
  const ShortGapTables& tables = shared.tables;
  const bool position = bias.position_sums.words != nullptr;
  const bool time = bias.time_sums.words != nullptr;
  const bool counts = pairs.largest != nullptr;
  if (time) {
    shared.tables.fill(nullptr, 0, thread, kThreads);
    for (int bucket = 0; bucket < kBinRows; ++bucket) own_bins[bucket * 32] = 0;
  }
  if (thread == 0) {
    for (auto& barrier : shared.arrived) barrier_init(&barrier, 1);
    barrier_init_fence();
  }
  __syncthreads();
  UnitSource source{pairs, bias, walks, next_walk};
  if (thread == 0) {
    source.ask(static_cast<int>(blockIdx.x));
    for (int i = 0; i < kStages; ++i) source.fill(shared.stages[i], shared.arrived + i);
  }

  UnitSums sums;
  BinRange range;
  for (RingPlace<kStages> place;; place.advance()) {
    Stage& stage = shared.stages[place.index()];
    barrier_wait(shared.arrived + place.index(), place.phase());
    if (stage.query_tile < 0) break;
    const bool last = stage.last;
    const int diagonal = stage.tile.block;
    if (counts) decode_line(stage, pairs, heads);
    const float unit_sum = sums.add(stage.unit);
    if (time) {
      // Of the warp's keys the last one has the first bucket.
      const BucketSearch key{stage.keys[thread]};
      const BucketSearch first_key{stage.keys[thread / 32 * 32]};
      const BucketSearch last_key{stage.keys[thread / 32 * 32 + 31]};
      const int first = last_key.bucket_of(tables, stage.queries[0]);
      const int final = first_key.bucket_of(tables, stage.queries[kUnit - 1]);
      if (__ldg(bias.usable + stage.tile.sequence) == 0) {
        add_exact_times(tables, bias, stage, own_bins);
        range.take(0, kBinRows - 1);
      } else if (final - first <= kFewBuckets) {
        range.take(first, final);
        own_bins[first * 32] += unit_sum;
        for (int bucket = first + 1; bucket <= final; ++bucket) {
          const float rest =
              sum_from(stage, key.start_of(tables, bucket), first_key.start_of(tables, bucket));
          own_bins[bucket * 32 - 32] -= rest;
          own_bins[bucket * 32] += rest;
        }
      } else {
        range.take(first, final);
        add_key_times(tables, stage, own_bins);
      }
      if (last) range.flush(shared.bins[thread / 32], bias.time_sums);
    }
    // The copy engine writes where these have been.
    if (counts) fence_async_proxy();
    __syncthreads();
    if (position && last) {
      sums.flush(reinterpret_cast<float*>(stage.unit), bias, diagonal * kUnit);
      fence_async_proxy();
      __syncthreads();
    }
    if (thread == 0) source.fill(stage, shared.arrived + place.index());
  }

  // The last block leaves the counters as it found them.
  if (thread == 0) {
    __threadfence();
    if (atomicAdd(next_walk + 1, 1) == static_cast<int>(gridDim.x) - 1) {
      next_walk[0] = 0;
      next_walk[1] = 0;
    }
  }
}

}  // namespace

void launch_table_gradients(const PairArgs& pairs, const BiasArgs& bias, const PairTiles& tiles,
                            int heads, int* next_walk, cudaStream_t stream) {
  constexpr int kBytes = sizeof(Shared);
  static const int blocks = resident_blocks(table_gradients_kernel, kThreads, kBytes);
  table_gradients_kernel<<<blocks, kThreads, kBytes, stream>>>(pairs, bias, Walks{tiles}, heads,
                                                               next_walk);
  check(cudaGetLastError(), "attention table gradients");
}

}  // namespace turbogr::cuda
