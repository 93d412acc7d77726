// What the kernels by tiles of queries share (attention_forward.cuh, attention_query_gradient.cuh).
// A block is one producer warp and kConsumers warpgroups of 64 query rows each; it takes tiles
// (sequence, head, query block) from a list until the list is empty. The producer brings what
// belongs to the queries once and K, V and the bias block by block, the newest keys first, so that
// the masked blocks come first.
#pragma once

#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/attention_pairs.cuh"
#include "turbogr/ops/attention/hopper/attention_products.cuh"
#include "turbogr/ops/attention/hopper/attention_tile.cuh"

namespace turbogr::cuda {

template <int D, int kConsumers_, int kKeys_, int kBiasStages_, int kBlocksPerSm_>
struct QueryTileConfig {
  static constexpr int kConsumers = kConsumers_;
  static constexpr int kKeys = kKeys_;
  static constexpr int kBiasStages = kBiasStages_;
  static constexpr int kBlocksPerSm = kBlocksPerSm_;
  static constexpr int kQueries = 64 * kConsumers;
  // Alone on its multiprocessor, a block hands the producer's registers to the consumers, which
  // takes whole warpgroups.
  static constexpr bool kMoveRegisters = kBlocksPerSm == 1;
  static constexpr int kThreads = 128 * kConsumers + (kMoveRegisters ? 128 : 32);
  static constexpr int kQueryBytes = kQueries * D * 2;
  static constexpr int kKeyBytes = kKeys * D * 2;
  static constexpr int kKeyUnits = kKeys / kUnit;
  static constexpr int kBiasStageBytes = kConsumers * kKeyUnits * kUnitBytes;
  static constexpr int kBiasBytes = kBiasStages * kBiasStageBytes;
  // Whether a second warp brings the bias: where there is one.
  static constexpr bool kBiasWarp = kMoveRegisters;
};

// Barriers by number; those of a ring have one a stage, of which there are two at most.
enum QueryTileBarrier : int {
  kTaskFull,
  kQueriesFull,
  kQueriesEmpty,
  kKeysFull,
  kKeysEmpty = kKeysFull + 2,
  kValuesFull = kKeysEmpty + 2,
  kValuesEmpty = kValuesFull + 2,
  kUnitsFull = kValuesEmpty + 2,
  kUnitsEmpty = kUnitsFull + 2,
  kQueryTileBarriers = kUnitsEmpty + 2,
};

// What comes behind the tiles in shared memory.
template <SharedAddress kBarriers>
struct QueryTileEnd {
  static constexpr SharedAddress kItem = kBarriers + (kQueryTileBarriers + 1) / 2 * 16;
  static constexpr int kBytes = kItem + sizeof(AttentionItem) - kSharedStart;

  __device__ static constexpr SharedAddress barrier(int number) { return kBarriers + 8 * number; }
};

// The rows of bias units of a tile of queries, one for each warpgroup.
template <class Config>
struct BiasRows {
  const char* rows[Config::kConsumers];  // the units of key 0
  int query_tile;
  int tiles;  // of queries in the sequence

  BiasRows() = default;
  __device__ BiasRows(const PairArgs& pairs, const AttentionItem& item)
      : query_tile(item.block * Config::kConsumers), tiles((item.length + kUnit - 1) / kUnit) {
    for (int group = 0; group < Config::kConsumers; ++group) {
      rows[group] = pairs.bias + static_cast<std::int64_t>(
                                     query_band_unit(pairs, item.sequence, query_tile + group, 0)) *
                                     kUnitBytes;
    }
  }
  // How many units of a block of keys there are: none past the diagonal or the last query.
  __device__ __forceinline__ int units(int group, int key_tile) const {
    if (query_tile + group >= tiles) return 0;
    return max(0, min(Config::kKeyUnits, query_tile + group - key_tile + 1));
  }
  __device__ __forceinline__ void load(int key_tile, SharedAddress to,
                                       SharedAddress barrier) const {
    int all = 0;
    for (int group = 0; group < Config::kConsumers; ++group) all += units(group, key_tile);
    barrier_expect(barrier, all * kUnitBytes);
    for (int group = 0; group < Config::kConsumers; ++group) {
      if (units(group, key_tile) == 0) continue;
      load_bytes(to + group * Config::kKeyUnits * kUnitBytes, rows[group] + key_tile * kUnitBytes,
                 units(group, key_tile) * kUnitBytes, barrier);
    }
  }
};

// The last block of keys that a tile of queries sees.
template <class Config>
__device__ __forceinline__ int last_block(const AttentionItem& item) {
  return (min((item.block + 1) * Config::kQueries, item.length) - 1) / Config::kKeys;
}

template <class Config, class Places>
__device__ __forceinline__ void load_units(const BiasRows<Config>& rows, int block,
                                           const RingPlace<Config::kBiasStages>& place) {
  barrier_wait(Places::barrier(kUnitsEmpty + place.index()), place.phase() ^ 1);
  rows.load(block * Config::kKeyUnits, Places::kBiases + place.index() * Config::kBiasStageBytes,
            Places::barrier(kUnitsFull + place.index()));
}

template <class Config, class Places>
__device__ __forceinline__ void produce_units(const AttentionArgs& args,
                                              const AttentionItem& shared_item) {
  RingPlace<Config::kBiasStages> place;
  int phase = 0;
  for (;;) {
    barrier_wait(Places::barrier(kTaskFull), phase);
    phase ^= 1;
    const AttentionItem item = shared_item;
    barrier_arrive(Places::barrier(kQueriesEmpty));
    if (item.length < 0) break;
    const BiasRows<Config> rows(args.pairs, item);
#pragma unroll 1
    for (int block = last_block<Config>(item); block >= 0; --block) {
      load_units<Config, Places>(rows, block, place);
      place.advance();
    }
  }
}

// `Pass` says what it brings of queries, and where the tiles of keys, values and bias lie.
template <int D, class Pass>
__device__ __forceinline__ void produce_tiles(const AttentionArgs& args,
                                              AttentionItem& shared_item) {
  using Config = typename Pass::Config;
  using Places = typename Pass::Places;
  constexpr bool kBringBias = Pass::kBias && !Config::kBiasWarp;
  typename Config::Rings rings;
  int q_phase = 0;
  ItemSource source(args);
  for (;;) {
    AttentionItem item;
    const bool more = source.take(item);
    barrier_wait(Places::barrier(kQueriesEmpty), q_phase ^ 1);
    if (!more) item.length = -1;
    shared_item = item;
    if constexpr (Pass::kBias && Config::kBiasWarp) barrier_arrive(Places::barrier(kTaskFull));
    if (!more) {
      barrier_arrive(Places::barrier(kQueriesFull));
      break;
    }
    q_phase ^= 1;
    Pass::load_queries(args, item, item.first_row + item.block * Config::kQueries);
    [[maybe_unused]] BiasRows<Config> rows;
    if constexpr (kBringBias) rows = BiasRows<Config>(args.pairs, item);
#pragma unroll(Config::kProducerUnroll)
    for (int block = last_block<Config>(item); block >= 0; --block) {
      const int row = item.first_row + block * Config::kKeys;
      const SharedAddress k_tile = Places::kKeys + rings.keys().index() * Config::kKeyBytes;
      const SharedAddress v_tile = Places::kValues + rings.values().index() * Config::kKeyBytes;
      barrier_wait(Places::barrier(kKeysEmpty + rings.keys().index()), rings.keys().phase() ^ 1);
      load_tile<D, Config::kKeys>(
          k_tile, &args.k_map, Places::barrier(kKeysFull + rings.keys().index()), item.head, row);
      if constexpr (kBringBias) load_units<Config, Places>(rows, block, rings.units());
      barrier_wait(Places::barrier(kValuesEmpty + rings.values().index()),
                   rings.values().phase() ^ 1);
      load_tile<D, Config::kKeys>(v_tile, &args.v_map,
                                  Places::barrier(kValuesFull + rings.values().index()), item.head,
                                  row);
      rings.advance();
    }
  }
  source.finish();
}

// Frees the blocks of keys down to `last`, which only the warpgroups below need. Without a product
// to keep its warps together, a warpgroup must meet before its leader frees a buffer: a warp left
// behind would miss two flips of a barrier.
template <class Places, bool kBias, class Keys, class Values, class Units>
__device__ __forceinline__ void skip_blocks(const Consumer& thread, int& block, int last,
                                            Keys& k_place, Values& v_place, Units& bias_place) {
  for (; block > last; --block) {
    barrier_wait(Places::barrier(kKeysFull + k_place.index()), k_place.phase());
    barrier_wait(Places::barrier(kValuesFull + v_place.index()), v_place.phase());
    if constexpr (kBias) {
      barrier_wait(Places::barrier(kUnitsFull + bias_place.index()), bias_place.phase());
    }
    named_barrier(1 + thread.group, 128);
    if constexpr (kBias) {
      if (thread.lane == 0) barrier_arrive(Places::barrier(kUnitsEmpty + bias_place.index()));
      bias_place.advance();
    }
    if (thread.leader) {
      barrier_arrive(Places::barrier(kKeysEmpty + k_place.index()));
      barrier_arrive(Places::barrier(kValuesEmpty + v_place.index()));
    }
    k_place.advance();
    v_place.advance();
  }
}

// Where this lane's piece of the first 16 keys lies in a stage of the bias: two of eight queries in
// each of eight lines.
template <class Config>
__device__ __forceinline__ int lane_unit_offset(const Consumer& thread) {
  const int lane = thread.lane;
  return thread.group * Config::kKeyUnits * kUnitBytes +
         piece_offset(lane / 16 * 8 + lane % 8, threadIdx.x / 32 % 4 * 2 + lane / 8 % 2);
}

// From scores to half the argument of SiLU. `line`: the address of this lane's piece in the first
// stage.
template <class Config, class Places, bool kBias, int R>
__device__ __forceinline__ void add_staged_bias(const Consumer& thread, float (&scores)[R],
                                                float half_alpha, SharedAddress line,
                                                RingPlace<Config::kBiasStages>& place) {
  if constexpr (kBias) {
    barrier_wait(Places::barrier(kUnitsFull + place.index()), place.phase());
    add_bias(scores, half_alpha, TransposedBias{line + place.index() * Config::kBiasStageBytes});
    // Each warp reads the stage by itself, and so frees it by itself.
    __syncwarp();
    if (thread.lane == 0) barrier_arrive(Places::barrier(kUnitsEmpty + place.index()));
    place.advance();
  } else {
    add_bias(scores, half_alpha, NoBias{});
  }
}

// Zeroes what queries do not see of a block of keys, from the warpgroup's first query and the
// block's first key.
template <int R>
__device__ __forceinline__ void hide_later_keys(const Consumer& thread, float (&scores)[R],
                                                int first_query, int first_key) {
  // The thread's own row of column 0: an element is seen up to this column.
  const int seen = first_query + thread.row - first_key - 2 * (thread.lane % 4);
  TGR_UNROLL
  for (int i = 0; i < R; ++i) {
    const int column = i / 4 * 8 + i % 2;
    if (column > seen + i / 2 % 2 * 8) scores[i] = 0;
  }
}

// Barriers and roles.
template <int D, class Pass>
__global__ void __launch_bounds__(Pass::Config::kThreads, Pass::Config::kBlocksPerSm)
    query_tile_kernel(const __grid_constant__ AttentionArgs args) {
  using Config = typename Pass::Config;
  using Places = typename Pass::Places;
  extern __shared__ char shared[];
  auto& item = *reinterpret_cast<AttentionItem*>(shared + Places::kItem - kSharedStart);
  if (threadIdx.x == 0) {
    check_shared_start(shared);
    barrier_init(Places::barrier(kQueriesFull), 1);
    barrier_init(Places::barrier(kTaskFull), 1);
    barrier_init(Places::barrier(kQueriesEmpty),
                 Config::kConsumers + (Pass::kBias && Config::kBiasWarp ? 1 : 0));
    for (int i = 0; i < 2; ++i) {
      barrier_init(Places::barrier(kKeysFull + i), 1);
      barrier_init(Places::barrier(kValuesFull + i), 1);
      barrier_init(Places::barrier(kUnitsFull + i), 1);
      barrier_init(Places::barrier(kUnitsEmpty + i), 4 * Config::kConsumers);
      barrier_init(Places::barrier(kKeysEmpty + i), Config::kConsumers);
      barrier_init(Places::barrier(kValuesEmpty + i), Config::kConsumers);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x >= 128 * Config::kConsumers) {
    if constexpr (Config::kMoveRegisters) give_registers<24>();
    if (threadIdx.x == 128 * Config::kConsumers) produce_tiles<D, Pass>(args, item);
    if constexpr (Pass::kBias && Config::kBiasWarp) {
      if (threadIdx.x == 128 * Config::kConsumers + 32) produce_units<Config, Places>(args, item);
    }
  } else {
    if constexpr (Config::kMoveRegisters) take_registers<240>();
    Pass::consume(args, item);
  }
}

template <int D, class Pass>
void launch_query_tiles(const AttentionArgs& args, cudaStream_t stream) {
  using Config = typename Pass::Config;
  const auto kernel = query_tile_kernel<D, Pass>;
  constexpr int kBytes = Pass::Places::kBytes;
  static const int blocks = resident_blocks(kernel, Config::kThreads, kBytes);
  kernel<<<blocks, Config::kThreads, kBytes, stream>>>(args);
  check(cudaGetLastError(), Pass::kName);
}

}  // namespace turbogr::cuda
