#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/attention_diagonals.cuh"
#include "turbogr/ops/attention/hopper/attention_head_sums.cuh"
#include "turbogr/ops/attention/hopper/attention_pair_times.cuh"
#include "turbogr/ops/attention/hopper/attention_pairs.cuh"
#include "turbogr/ops/attention/hopper/attention_tile.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kThreads = kUnit;
constexpr int kWarps = kThreads / 32;
constexpr int kStages = 2;
constexpr int kBlocks = 6;  // a multiprocessor
using Walks = DiagonalWalks<16, 8>;
constexpr int kFewBuckets = 4;  // beyond the first: each costs a pass over the unit
constexpr int kBinRows = kShortBuckets;
// Sums of a warp's diagonals lie eight lanes to a row; with this pitch in eight banks.
constexpr int kDiagonals = 88;
constexpr int kDiagonalPitch = 92;

struct Stage {
  alignas(128) char unit[kUnitBytes];
  alignas(16) std::uint32_t keys[kUnit];
  alignas(16) std::uint32_t queries[kUnit];
  AttentionItem tile;
  int query_tile;  // -1: there are no more
  bool last;       // of its walk
};

struct Shared {
  Stage stages[kStages];
  std::uint64_t arrived[kStages];
  ShortGapTables tables;
  // A walk's sums over time buckets, one copy a thread: no two threads ever add to the same.
  float bins[kWarps][kBinRows][32];
};

// Brings units, one walk after the other; one thread of the block asks.
struct UnitSource {
  const PairArgs& pairs;
  const BiasArgs& bias;
  const Walks& walks;
  int* next_walk;
  DiagonalWalk walk = {};
  int query_tile = 0;
  int query_tiles = 0;
  // Asked for a walk ahead, so that nothing waits.
  DiagonalWalk ahead = {};
  int number = 0;
  int after = 0;

  __device__ void ask(int the_number) {
    number = the_number;
    if (number < walks.count()) ahead = walks[number];
    after = static_cast<int>(gridDim.x) + atomicAdd(next_walk, 1);
  }
  __device__ void fill(Stage& stage, std::uint64_t* arrived) {
    while (query_tile >= query_tiles && number < walks.count()) {
      walk = ahead;
      query_tile = walk.first_query_tile();
      query_tiles = walk.end_query_tile();
      ask(after);
    }
    if (query_tile >= query_tiles) {
      stage.query_tile = -1;
      barrier_arrive(arrived);
      return;
    }
    const AttentionItem& tile = walk.tile;
    const int key_tile = query_tile - tile.block;
    stage.tile = tile;
    stage.query_tile = query_tile;
    stage.last = query_tile + walk.parts >= query_tiles;
    const bool times = bias.time_sums.words != nullptr;
    barrier_expect(arrived, kUnitBytes + (times ? 2 * kUnit * 4 : 0));
    load_bytes(stage.unit,
               pairs.gradients + unit_offset(pairs, tile.sequence, query_tile, key_tile),
               kUnitBytes, arrived);
    if (times) {
      const int start = padded_start(tile);
      load_bytes(stage.keys, bias.key_times + start + key_tile * kUnit, kUnit * 4, arrived);
      load_bytes(stage.queries, bias.query_times + start + query_tile * kUnit, kUnit * 4, arrived);
    }
    query_tile += walk.parts;
  }
};

__device__ __forceinline__ int time_copy() { return static_cast<int>(blockIdx.x) % kTimeSumCopies; }

// Which of a warp's bins hold something.
struct BinRange {
  int first = kBinRows;
  int last = -1;

  __device__ __forceinline__ void take(int from, int to) {
    first = min(first, from);
    last = max(last, to);
  }
  // Adds a warp's bins to the sums in memory and leaves none. At the end of each walk: which walks
  // a block gets is a matter of chance.
  __device__ __forceinline__ void flush(float (*bins)[32], const ExactSums& sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();
    for (int bucket = first + lane; bucket <= last; bucket += 32) {
      float all = 0;
#pragma unroll 8
      for (int i = 0; i < 32; ++i) {
        float& bin = bins[bucket][(i + bucket) % 32];
        all += bin;
        bin = 0;
      }
      sums.add(time_copy(), bucket, all);
    }
    __syncwarp();
    *this = {};
  }
};

// From counts (attention_head_sums.cuh) to bf16, in place: this thread's line.
__device__ __forceinline__ void decode_line(Stage& stage, const PairArgs& pairs, int heads) {
  const AttentionItem& tile = stage.tile;
  const int padded_tile = tile.first_row / kPaddedRows + tile.sequence + stage.query_tile;
  const HeadSumDecoder decode(HeadSumScale(heads, __ldg(pairs.largest + padded_tile)), heads);
  auto* line = reinterpret_cast<uint4*>(stage.unit + threadIdx.x * kLineBytes);
  TGR_UNROLL
  for (int i = 0; i < 8; ++i) {
    uint4& piece = line[(i + threadIdx.x) % 8];
    piece = make_uint4(decode(piece.x), decode(piece.y), decode(piece.z), decode(piece.w));
  }
  __syncwarp();
}

struct Gradients {
  float at[8];
  __device__ explicit Gradients(const uint4& packed) {
    const std::uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
    TGR_UNROLL
    for (int i = 0; i < 4; ++i) {
      at[2 * i] = __uint_as_float(words[i] << 16);
      at[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  }
};

// The sum of this thread's key over queries not before `end`; no key of the warp has an earlier end
// than `first_end`.
__device__ __forceinline__ float sum_from(const Stage& stage, std::uint32_t end,
                                          std::uint32_t first_end) {
  const int line = static_cast<int>(threadIdx.x);
  const unsigned beyond = __ballot_sync(~0u, stage.queries[line % 8 * 8 + 7] >= first_end);
  float sums[2] = {};
#pragma unroll 2
  for (int piece = __ffs(static_cast<int>(beyond | 0x80)) - 1; piece < 8; ++piece) {
    const Gradients gradients(
        *reinterpret_cast<const uint4*>(stage.unit + piece_offset(line, piece)));
    const auto* queries = reinterpret_cast<const uint4*>(stage.queries + 8 * piece);
    TGR_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint4 four = queries[i];
      if (four.x >= end) sums[i] += gradients.at[4 * i];
      if (four.y >= end) sums[i] += gradients.at[4 * i + 1];
      if (four.z >= end) sums[i] += gradients.at[4 * i + 2];
      if (four.w >= end) sums[i] += gradients.at[4 * i + 3];
    }
  }
  return sums[0] + sums[1];
}

// Adds this thread's key, whose pairs may be in any number of buckets.
__device__ __forceinline__ void add_key_times(const ShortGapTables& tables, const Stage& stage,
                                              float* own_bins) {
  const int line = static_cast<int>(threadIdx.x);
  const BucketSearch key{stage.keys[line]};
  // On the main diagonal no query before the warp's first key sees any.
  int piece = stage.tile.block == 0 ? line / 32 * 4 : 0;
  int bucket = key.bucket_of(tables, stage.queries[8 * piece]);
  float run = 0;  // of the pairs in that bucket
#pragma unroll 1
  for (; piece < 8; ++piece) {
    const Gradients gradients(
        *reinterpret_cast<const uint4*>(stage.unit + piece_offset(line, piece)));
    // Runs that end with the queries before each. Sorted times are never back in a bucket, so that
    // all bins can be read before the first is written.
    bool ends[8];
    float sums[8];
    float* bins[8];
    TGR_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int next = key.bucket_of(tables, stage.queries[8 * piece + i]);
      ends[i] = next != bucket;
      bins[i] = own_bins + bucket * 32;
      sums[i] = run + (ends[i] ? *bins[i] : 0.f);
      run = gradients.at[i] + (ends[i] ? 0.f : run);
      bucket = next;
    }
    TGR_UNROLL
    for (int i = 0; i < 8; ++i) {
      if (ends[i]) *bins[i] = sums[i];
    }
  }
  own_bins[bucket * 32] += run;
}

// The same for times that are not sorted or too far apart: every pair's bucket is looked up. Those
// of long gaps have no bin: they go straight to memory.
__device__ __forceinline__ void add_exact_times(const ShortGapTables& tables, const BiasArgs& bias,
                                                const Stage& stage, float* own_bins) {
  const int line = static_cast<int>(threadIdx.x);
  const int first_query = stage.query_tile * kUnit;
  const std::int64_t key =
      exact_key_time(bias, stage.tile, first_query - stage.tile.block * kUnit + line);
  int bucket = 0;
  float run = 0;  // of the pairs in that bucket
  const auto end_run = [&] {
    if (bucket < kBinRows) {
      own_bins[bucket * 32] += run;
    } else if (run != 0) {
      bias.time_sums.add(time_copy(), bucket, run);
    }
  };
#pragma unroll 1
  for (int piece = 0; piece < 8; ++piece) {
    const Gradients gradients(
        *reinterpret_cast<const uint4*>(stage.unit + piece_offset(line, piece)));
    TGR_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int next = exact_bucket(
          tables, exact_query_time(bias, stage.tile, first_query + 8 * piece + i), key);
      if (next != bucket) {
        end_run();
        bucket = next;
        run = 0;
      }
      run += gradients.at[i];
    }
  }
  end_run();
}

// A warp's 32 keys x 64 queries of units added up in f32 by the tensor cores, as a product with the
// identity: they take bf16 as it is. Rows are keys, in the registers of a product.
struct UnitSums {
  float at[2][8][4] = {};

  // Returns this lane's share of the sum of all.
  __device__ __forceinline__ float add(const char* unit) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int group = lane / 4;
    const std::uint32_t identity = group / 2 == lane % 4 ? 0x3f80u << (group % 2 * 16) : 0;
    const std::uint32_t base =
        shared_address(unit + (threadIdx.x / 32 * 32 + lane % 16) * kLineBytes);
    float rows[4] = {};
    TGR_UNROLL
    for (int m = 0; m < 2; ++m) {
      TGR_UNROLL
      for (int step = 0; step < 4; ++step) {
        std::uint32_t r[4];
        load_blocks(base + m * 16 * kLineBytes + ((2 * step + lane / 16) ^ (lane & 7)) * 16, r);
        TGR_UNROLL
        for (int i = 0; i < 2; ++i) {
          float(&c)[4] = at[m][2 * step + i];
          asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, "
              "{%6}, "
              "{%0, %1, %2, %3};"
              : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
              : "r"(r[2 * i]), "r"(r[2 * i + 1]), "r"(identity));
        }
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, "
            "%7}, "
            "{%8, %8}, {%0, %1, %2, %3};"
            : "+f"(rows[0]), "+f"(rows[1]), "+f"(rows[2]), "+f"(rows[3])
            : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(0x3f803f80u));
      }
    }
    return 0.25f * (rows[0] + rows[2]);  // four lanes have the same rows
  }

  // The sums of differences query - key = first - 63 and on, with `scratch` for both warps'; leaves
  // the sums at zero.
  __device__ __forceinline__ void flush(float* scratch, const BiasArgs& bias, int first) {
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    // Registers whose difference is 8 j + column - row, of the lane's columns and rows of a block.
    TGR_UNROLL
    for (int j = -3; j < 8; ++j) {
      TGR_UNROLL
      for (int i = 0; i < 2; ++i) {
        float sum = 0;
        TGR_UNROLL
        for (int block = 0; block < 4; ++block) {
          const int n = j + block;
          if (n >= 0 && n < 8) sum += at[block / 2][n][block % 2 * 2 + i];
        }
        const int column = lane % 4 * 2 + i;
        scratch[(thread / 32 * 8 + column) * kDiagonalPitch + 8 * j - lane / 4 + 31] = sum;
      }
    }
    __syncthreads();
    for (int d = thread; d < 2 * kUnit - 1; d += kThreads) {
      float sum = 0;
      TGR_UNROLL
      for (int part = 0; part < 16; ++part) {
        const int from = d - part % 8 - (part < 8 ? 32 : 0);
        if (from >= 0 && from < kDiagonals) sum += scratch[part * kDiagonalPitch + from];
      }
      const int offset = first + d - (kUnit - 1);
      if (offset >= 0 && offset < bias.position_sums.size) bias.position_sums.add(0, offset, sum);
    }
    *this = {};
  }
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
