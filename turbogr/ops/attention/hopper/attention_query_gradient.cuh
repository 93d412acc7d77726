// dQ by itself: a block keeps a tile of queries and walks the keys they see, as the forward kernel
// does, and sums dS K in registers. With attention_key_gradient.cuh it replaces the backward kernel
// where the bits must be the same every time: seven products instead of five, but no sums of dQ in
// memory. The gradients of scores, which the bias tables want summed over heads, are added up here
// (attention_head_sums.cuh).
#pragma once

#include "turbogr/ops/attention/hopper/attention_backward.cuh"
#include "turbogr/ops/attention/hopper/attention_forward.cuh"
#include "turbogr/ops/attention/hopper/attention_head_sums.cuh"

namespace turbogr::cuda {

// Buffers: tiles of keys, of values, of bias and of sums over heads.
template <int D, int kConsumers_, int kKeyStages_, int kValueStages_, int kBiasStages_,
          int kSumBuffers_, int kBlocksPerSm_>
struct QueryGradientConfig {
  static constexpr int kConsumers = kConsumers_;
  static constexpr int kKeys = kUnit;
  static constexpr int kKeyStages = kKeyStages_;
  static constexpr int kValueStages = kValueStages_;
  static constexpr int kStages = kBiasStages_;
  static constexpr int kSumBuffers = kSumBuffers_;
  static constexpr int kBlocksPerSm = kBlocksPerSm_;
  static constexpr int kQueries = 64 * kConsumers;
  static constexpr bool kMoveRegisters = kBlocksPerSm == 1;
  static constexpr int kThreads = 128 * kConsumers + (kMoveRegisters ? 128 : 32);
  static constexpr int kQueryBytes = kQueries * D * 2;
  static constexpr int kKeyBytes = kKeys * D * 2;
  static constexpr int kKeyUnits = 1;
  static constexpr int kBiasStageBytes = kConsumers * kUnitBytes;
  static constexpr int kBiasBytes = kStages * kBiasStageBytes;
  static constexpr bool kBiasWarp = kMoveRegisters;
};

template <class Config, bool kBias>
struct QueryGradientPlaces {
  static_assert(Config::kKeyStages <= 2 && Config::kValueStages <= 2 && Config::kStages <= 2);
  static constexpr SharedAddress kQueries = kSharedStart;
  static constexpr SharedAddress kDouts = kQueries + Config::kQueryBytes;
  static constexpr SharedAddress kKeys = kDouts + Config::kQueryBytes;
  static constexpr SharedAddress kValues = kKeys + Config::kKeyStages * Config::kKeyBytes;
  static constexpr SharedAddress kBiases = kValues + Config::kValueStages * Config::kKeyBytes;
  static constexpr SharedAddress kSums = kBiases + (kBias ? Config::kBiasBytes : 0);
  static constexpr SharedAddress kBarriers =
      kSums + (kBias ? Config::kSumBuffers * Config::kConsumers * kUnitBytes : 0);
  static constexpr SharedAddress kItem = kBarriers + (kForwardBarriers + 1) / 2 * 16;
  static constexpr int kBytes = kItem + sizeof(AttentionItem) - kSharedStart;

  __device__ static constexpr SharedAddress barrier(int number) { return kBarriers + 8 * number; }
};

template <int D, class Config, bool kBias>
__device__ __forceinline__ void query_gradient_produce(const AttentionArgs& args,
                                                       AttentionItem& shared_item) {
  using Places = QueryGradientPlaces<Config, kBias>;
  using Shape = PanelShape<D>;
  RingPlace<Config::kKeyStages> k_place;
  RingPlace<Config::kValueStages> v_place;
  [[maybe_unused]] RingPlace<Config::kStages> bias_place;
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
    const int first_row = item.first_row + item.block * Config::kQueries;
    barrier_expect(Places::barrier(kQueriesFull), 2 * Config::kQueryBytes);
    for (int p = 0; p < Shape::kPanels; ++p) {
      const int at = p * Config::kQueries * Shape::kLineBytes;
      load_box(Places::kQueries + at, &args.q_map, Places::barrier(kQueriesFull),
               p * Shape::kColumns, item.head, first_row);
      load_box(Places::kDouts + at, &args.dout_map, Places::barrier(kQueriesFull),
               p * Shape::kColumns, item.head, first_row);
    }
    [[maybe_unused]] BiasRows<Config> rows;
    if constexpr (kBias && !Config::kBiasWarp) rows = BiasRows<Config>(args.pairs, item);
#pragma unroll 1
    for (int block = last_block<Config>(item); block >= 0; --block) {
      const int row = item.first_row + block * Config::kKeys;
      const SharedAddress k_tile = Places::kKeys + k_place.index() * Config::kKeyBytes;
      const SharedAddress v_tile = Places::kValues + v_place.index() * Config::kKeyBytes;
      barrier_wait(Places::barrier(kKeysEmpty + k_place.index()), k_place.phase() ^ 1);
      barrier_expect(Places::barrier(kKeysFull + k_place.index()), Config::kKeyBytes);
      for (int p = 0; p < Shape::kPanels; ++p) {
        load_box(k_tile + p * Config::kKeys * Shape::kLineBytes, &args.k_map,
                 Places::barrier(kKeysFull + k_place.index()), p * Shape::kColumns, item.head, row);
      }
      if constexpr (kBias && !Config::kBiasWarp) {
        barrier_wait(Places::barrier(kUnitsEmpty + bias_place.index()), bias_place.phase() ^ 1);
        rows.load(block, Places::kBiases + bias_place.index() * Config::kBiasStageBytes,
                  Places::barrier(kUnitsFull + bias_place.index()));
        bias_place.advance();
      }
      barrier_wait(Places::barrier(kValuesEmpty + v_place.index()), v_place.phase() ^ 1);
      barrier_expect(Places::barrier(kValuesFull + v_place.index()), Config::kKeyBytes);
      for (int p = 0; p < Shape::kPanels; ++p) {
        load_box(v_tile + p * Config::kKeys * Shape::kLineBytes, &args.v_map,
                 Places::barrier(kValuesFull + v_place.index()), p * Shape::kColumns, item.head,
                 row);
      }
      k_place.advance();
      v_place.advance();
    }
  }
  source.finish();
}

template <int D, class Config, bool kBias>
__device__ __forceinline__ void query_gradient_consume(const AttentionArgs& args,
                                                       const AttentionItem& shared_item) {
  using Places = QueryGradientPlaces<Config, kBias>;
  using Shape = PanelShape<D>;
  constexpr int kKeys = Config::kKeys;
  constexpr int kPanelBytes = kKeys * Shape::kLineBytes;
  const int group = threadIdx.x / 128;
  const bool leader = threadIdx.x % 128 == 0;
  const int lane = threadIdx.x % 32;
  const int thread_row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  const Operand<D> q_operand(Places::kQueries + group * 64 * Shape::kLineBytes, 16);
  const Operand<D> dout_operand(Places::kDouts + group * 64 * Shape::kLineBytes, 16);
  const Operand<D> k_operand(Places::kKeys, 16);
  const Operand<D> v_operand(Places::kValues, 16);
  // K again, with keys along the sum.
  const Operand<D> sum_operand(Places::kKeys, kPanelBytes);
  RingPlace<Config::kKeyStages> k_place;
  RingPlace<Config::kValueStages> v_place;
  [[maybe_unused]] RingPlace<Config::kStages> bias_place;
  int q_phase = 0;
  // Where this lane's piece of the first 16 keys lies in a unit: two of eight queries in each of
  // eight lines.
  [[maybe_unused]] const int unit_at =
      group * kUnitBytes +
      piece_offset(lane / 16 * 8 + lane % 8, threadIdx.x / 32 % 4 * 2 + lane / 8 % 2);
  [[maybe_unused]] int sum_buffer = 0;

  float scores[kKeys / 2];
  float dweights[kKeys / 2];
  float sums[D / 2];
  std::uint32_t grads[kKeys / 4] = {};

  for (;;) {
    barrier_wait(Places::barrier(kQueriesFull), q_phase);
    q_phase ^= 1;
    const AttentionItem item = shared_item;
    if (item.length < 0) break;
    const int first_query = item.block * Config::kQueries + 64 * group;
    const int end = min(first_query + 64, item.length);
    int block = last_block<Config>(item);
    // Blocks that only the warpgroups below need; a warpgroup past the end needs none.
    const int last = end > first_query ? (end - 1) / kKeys : -1;
    for (; block > last; --block) {
      barrier_wait(Places::barrier(kKeysFull + k_place.index()), k_place.phase());
      barrier_wait(Places::barrier(kValuesFull + v_place.index()), v_place.phase());
      if constexpr (kBias) {
        barrier_wait(Places::barrier(kUnitsFull + bias_place.index()), bias_place.phase());
      }
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
    const bool table_sums = kBias && args.pairs.gradients != nullptr;
    [[maybe_unused]] int unit = 0;  // of this block
    [[maybe_unused]] unsigned largest = 0;
    if (table_sums) {
      unit = unit_number(args.pairs, item.sequence, first_query / kUnit, block);
      largest =
          args.pairs
              .largest[item.first_row / kPaddedRows + item.sequence + first_query / kPaddedRows];
    }
    const HeadSumEncoder encode(HeadSumScale(args.heads, largest));

    const auto multiply_scores = [&] {
      barrier_wait(Places::barrier(kKeysFull + k_place.index()), k_place.phase());
      wgmma_fence();
      TGR_UNROLL
      for (int step = 0; step < D / 16; ++step) {
        Wgmma<kKeys>::template ss<0, 0>(
            scores, q_operand.at(column_step<D, Config::kQueries>(step)),
            k_operand.at(k_place.index() * Config::kKeyBytes + column_step<D, kKeys>(step)),
            step != 0);
      }
      wgmma_commit();
    };
    const auto multiply_dweights = [&] {
      barrier_wait(Places::barrier(kValuesFull + v_place.index()), v_place.phase());
      wgmma_fence();
      TGR_UNROLL
      for (int step = 0; step < D / 16; ++step) {
        Wgmma<kKeys>::template ss<0, 0>(
            dweights, dout_operand.at(column_step<D, Config::kQueries>(step)),
            v_operand.at(v_place.index() * Config::kKeyBytes + column_step<D, kKeys>(step)),
            step != 0);
      }
      wgmma_commit();
    };
    const auto release_values = [&] {
      pin(dweights);
      if (leader) barrier_arrive(Places::barrier(kValuesEmpty + v_place.index()));
      v_place.advance();
    };
    const auto multiply_sums = [&](bool accumulate) {
      pin(grads);
      wgmma_fence();
      TGR_UNROLL
      for (int step = 0; step < kKeys / 16; ++step) {
        Wgmma<D>::template rs<1>(
            sums, grads + 4 * step,
            sum_operand.at(k_place.index() * Config::kKeyBytes + row_step<D>(step)),
            accumulate || step != 0);
      }
      wgmma_commit();
    };
    const auto release_keys = [&] {
      pin(sums);
      pin(grads);
      if (leader) barrier_arrive(Places::barrier(kKeysEmpty + k_place.index()));
      k_place.advance();
    };
    // From scores to twice SiLU's derivative.
    const auto weigh = [&] {
      pin(scores);
      const int first_key = block * kKeys;
      if constexpr (kBias) {
        barrier_wait(Places::barrier(kUnitsFull + bias_place.index()), bias_place.phase());
        add_bias(scores, args.half_alpha,
                 TransposedBias{Places::kBiases + unit_at +
                                bias_place.index() * Config::kBiasStageBytes});
        __syncwarp();
        if (lane == 0) barrier_arrive(Places::barrier(kUnitsEmpty + bias_place.index()));
        bias_place.advance();
      } else {
        add_bias(scores, args.half_alpha, NoBias{});
      }
      TGR_UNROLL
      for (int i = 0; i < kKeys / 2; ++i) scores[i] = silu_parts(scores[i]).derivative;
      if (!kBias && first_key + kKeys - 1 > first_query) {
        const int seen = first_query + thread_row - first_key - 2 * (lane % 4);
        TGR_UNROLL
        for (int i = 0; i < kKeys / 2; ++i) {
          const int column = i / 4 * 8 + i % 2;
          if (column > seen + i / 2 % 2 * 8) scores[i] = 0;
        }
      }
    };
    // Adds the gradients of this block's scores to the sums over heads.
    const auto add_counts = [&] {
      const SharedAddress to =
          Places::kSums + sum_buffer * Config::kConsumers * kUnitBytes + unit_at;
      if constexpr (Config::kSumBuffers == 1) {
        if (leader) wait_stores_read<0>();
        named_barrier(1 + group, 128);
      }
      TGR_UNROLL
      for (int step = 0; step < kKeys / 16; ++step) {
        std::uint32_t counts[4];
        TGR_UNROLL
        for (int i = 0; i < 4; ++i) {
          counts[i] = encode(dweights[8 * step + 2 * i], dweights[8 * step + 2 * i + 1]);
        }
        store_blocks_transposed(to + step * 16 * kLineBytes, counts);
      }
      fence_async_proxy();
      // The other buffer is free to be written after the barrier.
      if (Config::kSumBuffers > 1 && leader) wait_stores_read<0>();
      named_barrier(1 + group, 128);
      if (leader) {
        add_bytes_u32(args.pairs.gradients + static_cast<std::int64_t>(unit) * kUnitBytes,
                      Places::kSums + (sum_buffer * Config::kConsumers + group) * kUnitBytes,
                      kUnitBytes);
      }
      --unit;
      sum_buffer = (sum_buffer + 1) % Config::kSumBuffers;
    };
    const auto differentiate = [&] {
      TGR_UNROLL
      for (int i = 0; i < kKeys / 2; ++i) dweights[i] *= scores[i];
      TGR_UNROLL
      for (int i = 0; i < kKeys / 4; ++i) {
        grads[i] = pack_bf16(dweights[2 * i], dweights[2 * i + 1]);
      }
    };

    for (bool accumulate = false;; accumulate = true) {
      // The values first: keys may still be on their way.
      multiply_dweights();
      multiply_scores();
      wgmma_wait<1>();
      release_values();
      wgmma_wait<0>();
      weigh();
      differentiate();
      multiply_sums(accumulate);
      if (table_sums) add_counts();
      if (--block < 0) break;
      wgmma_wait<0>();
      release_keys();
    }
    if (leader) barrier_arrive(Places::barrier(kQueriesEmpty));

    // In parts, for the sake of registers.
    constexpr int kPart = D < 128 ? D : 128;
    const std::int64_t row = item.first_row + first_query;
    const int rows = end - first_query;
    const auto load_before = [&](BeforeRows<kPart>& before, int column) {
      if (args.q_before.data == nullptr) return;
      before.load(
          {args.q_before.data + row * args.q_before.stride + item.head * args.query_width + column,
           args.q_before.stride},
          rows, args.query_width - column);
    };
    BeforeRows<kPart> before;
    load_before(before, 0);
    wgmma_wait<0>();
    release_keys();
    TGR_UNROLL
    for (int part = 0; part < D / kPart; ++part) {
      if (part > 0) load_before(before, part * kPart);
      float share[kPart / 2];
      TGR_UNROLL
      for (int i = 0; i < kPart / 2; ++i) share[i] = sums[part * (kPart / 2) + i];
      store_tile<kPart>(share, args.score_scale,
                        static_cast<__nv_bfloat16*>(args.dq) + row * args.dq_stride +
                            item.head * args.query_width + part * kPart,
                        args.dq_stride, rows, args.query_width - part * kPart, before);
    }
  }
  if (kBias && leader) wait_added();
}

template <int D, class Config, bool kBias>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    query_gradient_kernel(const __grid_constant__ AttentionArgs args) {
  using Places = QueryGradientPlaces<Config, kBias>;
  extern __shared__ char shared[];
  auto& item = *reinterpret_cast<AttentionItem*>(shared + Places::kItem - kSharedStart);
  if (threadIdx.x == 0) {
    check_shared_start(shared);
    barrier_init(Places::barrier(kQueriesFull), 1);
    barrier_init(Places::barrier(kTaskFull), 1);
    barrier_init(Places::barrier(kQueriesEmpty),
                 Config::kConsumers + (kBias && Config::kBiasWarp ? 1 : 0));
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
    if (threadIdx.x == 128 * Config::kConsumers) {
      query_gradient_produce<D, Config, kBias>(args, item);
    }
    if constexpr (kBias && Config::kBiasWarp) {
      if (threadIdx.x == 128 * Config::kConsumers + 32) produce_units<Config, Places>(args, item);
    }
  } else {
    if constexpr (Config::kMoveRegisters) take_registers<240>();
    query_gradient_consume<D, Config, kBias>(args, item);
  }
}

template <int D, class Config, bool kBias>
void launch_query_gradient(const AttentionArgs& args, cudaStream_t stream) {
  const auto kernel = query_gradient_kernel<D, Config, kBias>;
  constexpr int kBytes = QueryGradientPlaces<Config, kBias>::kBytes;
  static const int blocks = resident_blocks(kernel, Config::kThreads, kBytes);
  kernel<<<blocks, Config::kThreads, kBytes, stream>>>(args);
  check(cudaGetLastError(), "attention dq");
}

}  // namespace turbogr::cuda
