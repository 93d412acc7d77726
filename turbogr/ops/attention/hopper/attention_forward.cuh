// Forward attention. A block is one producer warp and kConsumers warpgroups of 64 query rows each;
// it takes tiles (sequence, head, query block) from a list until the list is empty. The producer
// brings Q once and K, V block by block, the newest keys first, so that the masked blocks come
// first; a consumer multiplies by V while it applies SiLU to the next scores. Bound by the tensor
// cores at width 128 and above, by special functions and shared memory at 64.
#pragma once

#include "turbogr/cuda/check.cuh"
#include "turbogr/cuda/wgmma.cuh"
#include "turbogr/ops/attention/hopper/attention_pairs.cuh"
#include "turbogr/ops/attention/hopper/attention_tile.cuh"

namespace turbogr::cuda {

template <int D, int kConsumers_, int kKeys_, int kStages_, int kBlocksPerSm_>
struct ForwardConfig {
  static constexpr int kConsumers = kConsumers_;
  static constexpr int kKeys = kKeys_;
  static constexpr int kStages = kStages_;
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
  static constexpr int kBiasBytes = kStages * kBiasStageBytes;
  // Whether a second warp brings the bias: where there is one.
  static constexpr bool kBiasWarp = kMoveRegisters;
};

// Barriers by number; those of a ring have one a stage.
enum ForwardBarrier : int {
  kTaskFull,
  kQueriesFull,
  kQueriesEmpty,
  kKeysFull,
  kKeysEmpty = kKeysFull + 2,
  kValuesFull = kKeysEmpty + 2,
  kValuesEmpty = kValuesFull + 2,
  kUnitsFull = kValuesEmpty + 2,
  kUnitsEmpty = kUnitsFull + 2,
  kForwardBarriers = kUnitsEmpty + 2,
};

// What lies where in shared memory.
template <class Config, bool kBias>
struct ForwardPlaces {
  static_assert(Config::kStages == 2);
  static constexpr SharedAddress kQueries = kSharedStart;
  static constexpr SharedAddress kKeys = kQueries + Config::kQueryBytes;
  static constexpr SharedAddress kValues = kKeys + Config::kStages * Config::kKeyBytes;
  static constexpr SharedAddress kBiases = kValues + Config::kStages * Config::kKeyBytes;
  static constexpr SharedAddress kBarriers = kBiases + (kBias ? Config::kBiasBytes : 0);
  static constexpr SharedAddress kItem = kBarriers + (kForwardBarriers + 1) / 2 * 16;
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
      rows[group] = pairs.bias + unit_offset(pairs, item.sequence, query_tile + group, 0);
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
__device__ __forceinline__ void produce_units(const AttentionArgs& args,
                                              const AttentionItem& shared_item) {
  RingPlace<Config::kStages> place;
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
      barrier_wait(Places::barrier(kUnitsEmpty + place.index()), place.phase() ^ 1);
      rows.load(block * Config::kKeyUnits,
                Places::kBiases + place.index() * Config::kBiasStageBytes,
                Places::barrier(kUnitsFull + place.index()));
      place.advance();
    }
  }
}

template <int D, class Config, bool kBias>
__device__ __forceinline__ void forward_produce(const AttentionArgs& args,
                                                AttentionItem& shared_item) {
  using Places = ForwardPlaces<Config, kBias>;
  using Shape = PanelShape<D>;
  RingPlace<Config::kStages> place;
  int q_phase = 0;
  ItemSource source(args);
  for (;;) {
    AttentionItem item;
    const bool more = source.take(item);
    barrier_wait(Places::barrier(kQueriesEmpty), q_phase ^ 1);
    if (!more) item.length = -1;
    shared_item = item;
    if constexpr (kBias && Config::kBiasWarp) barrier_arrive(Places::barrier(kTaskFull));
    if (!more) {
      barrier_arrive(Places::barrier(kQueriesFull));
      break;
    }
    q_phase ^= 1;
    const int first_query = item.block * Config::kQueries;
    barrier_expect(Places::barrier(kQueriesFull), Config::kQueryBytes);
    for (int p = 0; p < Shape::kPanels; ++p) {
      load_box(Places::kQueries + p * Config::kQueries * Shape::kLineBytes, &args.q_map,
               Places::barrier(kQueriesFull), p * Shape::kColumns, item.head,
               item.first_row + first_query);
    }
    [[maybe_unused]] BiasRows<Config> rows;
    if constexpr (kBias && !Config::kBiasWarp) rows = BiasRows<Config>(args.pairs, item);
// One after the other where the producer has few registers.
#pragma unroll(Config::kMoveRegisters ? 1 : 4)
    for (int block = last_block<Config>(item); block >= 0; --block) {
      const int row = item.first_row + block * Config::kKeys;
      const SharedAddress k_tile = Places::kKeys + place.index() * Config::kKeyBytes;
      const SharedAddress v_tile = Places::kValues + place.index() * Config::kKeyBytes;
      barrier_wait(Places::barrier(kKeysEmpty + place.index()), place.phase() ^ 1);
      barrier_expect(Places::barrier(kKeysFull + place.index()), Config::kKeyBytes);
      for (int p = 0; p < Shape::kPanels; ++p) {
        load_box(k_tile + p * Config::kKeys * Shape::kLineBytes, &args.k_map,
                 Places::barrier(kKeysFull + place.index()), p * Shape::kColumns, item.head, row);
      }
      if constexpr (kBias && !Config::kBiasWarp) {
        barrier_wait(Places::barrier(kUnitsEmpty + place.index()), place.phase() ^ 1);
        rows.load(block * Config::kKeyUnits,
                  Places::kBiases + place.index() * Config::kBiasStageBytes,
                  Places::barrier(kUnitsFull + place.index()));
      }
      barrier_wait(Places::barrier(kValuesEmpty + place.index()), place.phase() ^ 1);
      barrier_expect(Places::barrier(kValuesFull + place.index()), Config::kKeyBytes);
      for (int p = 0; p < Shape::kPanels; ++p) {
        load_box(v_tile + p * Config::kKeys * Shape::kLineBytes, &args.v_map,
                 Places::barrier(kValuesFull + place.index()), p * Shape::kColumns, item.head, row);
      }
      place.advance();
    }
  }
  source.finish();
}

template <int D, class Config, bool kBias>
__device__ __forceinline__ void forward_consume(const AttentionArgs& args,
                                                const AttentionItem& shared_item) {
  using Places = ForwardPlaces<Config, kBias>;
  using Shape = PanelShape<D>;
  constexpr int kKeys = Config::kKeys;
  constexpr int kPanelBytes = kKeys * Shape::kLineBytes;
  const int group = threadIdx.x / 128;
  const bool leader = threadIdx.x % 128 == 0;
  const int lane = threadIdx.x % 32;
  const int thread_row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  const Operand<D> q_operand(Places::kQueries + group * 64 * Shape::kLineBytes, 16);
  const Operand<D> k_operand(Places::kKeys, 16);
  const Operand<D> v_operand(Places::kValues, kPanelBytes);
  RingPlace<Config::kStages> k_place;
  RingPlace<Config::kStages> v_place;
  [[maybe_unused]] RingPlace<Config::kStages> bias_place;
  int q_phase = 0;
  // Where this lane finds its piece of the first 16 keys of a bias tile: two of eight queries in
  // each of eight lines.
  [[maybe_unused]] const std::uint32_t bias_line =
      Places::kBiases + group * Config::kKeyUnits * kUnitBytes +
      piece_offset(lane / 16 * 8 + lane % 8, threadIdx.x / 32 % 4 * 2 + lane / 8 % 2);

  float scores[kKeys / 2];
  float sums[D / 2];
  std::uint32_t weights[kKeys / 4];

  const auto multiply_scores = [&] {
    const int k_at = k_place.index() * Config::kKeyBytes;
    TGR_UNROLL
    for (int step = 0; step < D / 16; ++step) {
      Wgmma<kKeys>::template ss<0, 0>(scores, q_operand.at(column_step<D, Config::kQueries>(step)),
                                      k_operand.at(k_at + column_step<D, kKeys>(step)), step != 0);
    }
    wgmma_commit();
  };
  const auto multiply_values = [&](bool accumulate) {
    const int v_at = v_place.index() * Config::kKeyBytes;
    TGR_UNROLL
    for (int step = 0; step < kKeys / 16; ++step) {
      Wgmma<D>::template rs<1>(sums, weights + 4 * step, v_operand.at(v_at + row_step<D>(step)),
                               accumulate || step != 0);
    }
    wgmma_commit();
  };

  for (;;) {
    barrier_wait(Places::barrier(kQueriesFull), q_phase);
    q_phase ^= 1;
    const AttentionItem item = shared_item;
    if (item.length < 0) break;
    const int tile_query = item.block * Config::kQueries;
    const int first_query = tile_query + 64 * group;
    const int tile_end = min(tile_query + Config::kQueries, item.length);
    const int end = min(first_query + 64, item.length);
    int block = (tile_end - 1) / kKeys;
    // Blocks that only the warpgroups below need; a warpgroup past the end needs none.
    const int last = end > first_query ? (end - 1) / kKeys : -1;
    // Without a product to keep its warps together, a warpgroup must meet before its leader frees a
    // buffer: a warp left behind would miss two flips of a barrier.
    for (; block > last; --block) {
      barrier_wait(Places::barrier(kKeysFull + k_place.index()), k_place.phase());
      barrier_wait(Places::barrier(kValuesFull + v_place.index()), v_place.phase());
      if constexpr (kBias)
        barrier_wait(Places::barrier(kUnitsFull + bias_place.index()), bias_place.phase());
      named_barrier(1 + group, 128);
      if constexpr (kBias) {
        if (lane == 0) barrier_arrive(Places::barrier(kUnitsEmpty + bias_place.index()));
        bias_place.advance();
      }
      if (leader) {
        barrier_arrive(Places::barrier(kKeysEmpty + k_place.index()));
        barrier_arrive(Places::barrier(kValuesEmpty + v_place.index()));
      }
      k_place.advance();
      v_place.advance();
    }
    if (last < 0) {
      if (leader) barrier_arrive(Places::barrier(kQueriesEmpty));
      continue;
    }

    const auto weigh = [&] {
      const int first_key = block * kKeys;
      if constexpr (kBias) {
        barrier_wait(Places::barrier(kUnitsFull + bias_place.index()), bias_place.phase());
        add_bias(scores, args.half_alpha,
                 TransposedBias{bias_line + bias_place.index() * Config::kBiasStageBytes});
        // Each warp reads the stage by itself, and so frees it by itself.
        __syncwarp();
        if (lane == 0) barrier_arrive(Places::barrier(kUnitsEmpty + bias_place.index()));
        bias_place.advance();
      } else {
        add_bias(scores, args.half_alpha, NoBias{});
      }
      TGR_UNROLL
      for (int i = 0; i < kKeys / 2; ++i) scores[i] = silu_of_half(scores[i]);
      if (first_key + kKeys - 1 > first_query) {
        // The thread's own row of column 0: an element is seen up to this column.
        const int seen = first_query + thread_row - first_key - 2 * (lane % 4);
        TGR_UNROLL
        for (int i = 0; i < kKeys / 2; ++i) {
          const int column = i / 4 * 8 + i % 2;
          if (column > seen + i / 2 % 2 * 8) scores[i] = 0;
        }
      }
    };
    const auto pack = [&] {
      TGR_UNROLL
      for (int i = 0; i < kKeys / 4; ++i) weights[i] = pack_bf16(scores[2 * i], scores[2 * i + 1]);
    };

    barrier_wait(Places::barrier(kKeysFull + k_place.index()), k_place.phase());
    wgmma_fence();
    multiply_scores();
    wgmma_wait<0>();
    pin(scores);
    if (leader) barrier_arrive(Places::barrier(kKeysEmpty + k_place.index()));
    k_place.advance();
    weigh();
    pack();
    bool accumulate = false;
    for (--block; block >= 0; --block) {
      barrier_wait(Places::barrier(kKeysFull + k_place.index()), k_place.phase());
      wgmma_fence();
      multiply_scores();
      barrier_wait(Places::barrier(kValuesFull + v_place.index()), v_place.phase());
      wgmma_fence();
      multiply_values(accumulate);
      wgmma_wait<1>();
      pin(scores);
      if (leader) barrier_arrive(Places::barrier(kKeysEmpty + k_place.index()));
      weigh();
      wgmma_wait<0>();
      accumulate = true;
      k_place.advance();
      pin(sums);
      pin(weights);
      if (leader) barrier_arrive(Places::barrier(kValuesEmpty + v_place.index()));
      v_place.advance();
      pack();
    }
    if (leader) barrier_arrive(Places::barrier(kQueriesEmpty));
    barrier_wait(Places::barrier(kValuesFull + v_place.index()), v_place.phase());
    wgmma_fence();
    multiply_values(accumulate);
    wgmma_wait<0>();
    pin(sums);
    if (leader) barrier_arrive(Places::barrier(kValuesEmpty + v_place.index()));
    v_place.advance();
    auto* out = static_cast<__nv_bfloat16*>(args.out) +
                static_cast<std::int64_t>(item.first_row + first_query) * args.out_stride +
                item.head * args.value_width;
    store_tile<D>(sums, args.output_scale, out, args.out_stride, end - first_query,
                  args.value_width);
  }
}

template <int D, class Config, bool kBias>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    forward_kernel(const __grid_constant__ AttentionArgs args) {
  using Places = ForwardPlaces<Config, kBias>;
  extern __shared__ char shared[];
  auto& item = *reinterpret_cast<AttentionItem*>(shared + Places::kItem - kSharedStart);
  if (threadIdx.x == 0) {
    check_shared_start(shared);
    barrier_init(Places::barrier(kQueriesFull), 1);
    barrier_init(Places::barrier(kTaskFull), 1);
    barrier_init(Places::barrier(kQueriesEmpty),
                 Config::kConsumers + (kBias && Config::kBiasWarp ? 1 : 0));
    for (int i = 0; i < Config::kStages; ++i) {
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
    if (threadIdx.x == 128 * Config::kConsumers) {
      forward_produce<D, Config, kBias>(args, item);
    }
    if constexpr (kBias && Config::kBiasWarp) {
      if (threadIdx.x == 128 * Config::kConsumers + 32) produce_units<Config, Places>(args, item);
    }
  } else {
    if constexpr (Config::kMoveRegisters) take_registers<240>();
    forward_consume<D, Config, kBias>(args, item);
  }
}

template <int D, class Config, bool kBias>
void launch_forward(const AttentionArgs& args, cudaStream_t stream) {
  const auto kernel = forward_kernel<D, Config, kBias>;
  constexpr int kBytes = ForwardPlaces<Config, kBias>::kBytes;
  static const int blocks = resident_blocks(kernel, Config::kThreads, kBytes);
  kernel<<<blocks, Config::kThreads, kBytes, stream>>>(args);
  check(cudaGetLastError(), "attention forward");
}

}  // namespace turbogr::cuda
