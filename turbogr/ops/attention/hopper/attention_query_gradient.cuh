// dQ by itself, by tiles of queries (attention_query_tile.cuh): a block walks the keys its queries
// see, as the forward kernel does, and sums dS K in registers. With attention_key_gradient.cuh it
// replaces the backward kernel where the bits must be the same every time: seven products instead
// of five, but no sums of dQ in memory. The gradients of scores, which the bias tables want summed
// over heads, are added up here (attention_head_sums.cuh).
#pragma once

#include "turbogr/ops/attention/hopper/attention_head_sums.cuh"
#include "turbogr/ops/attention/hopper/attention_query_tile.cuh"

namespace turbogr::cuda {

// Buffers: tiles of keys, of values, of bias and of sums over heads.
template <int D, int kConsumers, int kKeyStages_, int kValueStages_, int kBiasStages,
          int kSumBuffers_, int kBlocksPerSm>
struct QueryGradientConfig : QueryTileConfig<D, kConsumers, kUnit, kBiasStages, kBlocksPerSm> {
  static constexpr int kKeyStages = kKeyStages_;
  static constexpr int kValueStages = kValueStages_;
  static constexpr int kSumBuffers = kSumBuffers_;
  static constexpr int kProducerUnroll = 1;

  struct Rings {
    RingPlace<kKeyStages> key_place;
    RingPlace<kValueStages> value_place;
    RingPlace<kBiasStages> unit_place;
    __device__ __forceinline__ const RingPlace<kKeyStages>& keys() const { return key_place; }
    __device__ __forceinline__ const RingPlace<kValueStages>& values() const { return value_place; }
    __device__ __forceinline__ const RingPlace<kBiasStages>& units() const { return unit_place; }
    __device__ __forceinline__ void advance() {
      unit_place.advance();
      key_place.advance();
      value_place.advance();
    }
  };
};

template <class Config, bool kBias>
struct QueryGradientTiles {
  static_assert(Config::kKeyStages <= 2 && Config::kValueStages <= 2 && Config::kBiasStages <= 2);
  static constexpr SharedAddress kQueries = kSharedStart;
  static constexpr SharedAddress kDouts = kQueries + Config::kQueryBytes;
  static constexpr SharedAddress kKeys = kDouts + Config::kQueryBytes;
  static constexpr SharedAddress kValues = kKeys + Config::kKeyStages * Config::kKeyBytes;
  static constexpr SharedAddress kBiases = kValues + Config::kValueStages * Config::kKeyBytes;
  static constexpr SharedAddress kSums = kBiases + (kBias ? Config::kBiasBytes : 0);
  static constexpr SharedAddress kEnd =
      kSums + (kBias ? Config::kSumBuffers * Config::kConsumers * kUnitBytes : 0);
};
template <class Config, bool kBias>
struct QueryGradientPlaces : QueryGradientTiles<Config, kBias>,
                             QueryTileEnd<QueryGradientTiles<Config, kBias>::kEnd> {};

template <int D, class Config, bool kBias>
__device__ __forceinline__ void query_gradient_consume(const AttentionArgs& args,
                                                       const AttentionItem& shared_item) {
  using Places = QueryGradientPlaces<Config, kBias>;
  using Shape = PanelShape<D>;
  constexpr int kKeys = Config::kKeys;
  constexpr int kPanelBytes = kKeys * Shape::kLineBytes;
  const Consumer thread;
  const int group = thread.group;
  const bool leader = thread.leader;
  const Operand<D> q_operand(Places::kQueries + group * 64 * Shape::kLineBytes, 16);
  const Operand<D> dout_operand(Places::kDouts + group * 64 * Shape::kLineBytes, 16);
  const Operand<D> k_operand(Places::kKeys, 16);
  const Operand<D> v_operand(Places::kValues, 16);
  // K again, with keys along the sum.
  const Operand<D> sum_operand(Places::kKeys, kPanelBytes);
  RingPlace<Config::kKeyStages> k_place;
  RingPlace<Config::kValueStages> v_place;
  RingPlace<Config::kBiasStages> bias_place;
  int q_phase = 0;
  const int unit_at = lane_unit_offset<Config>(thread);
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
    // A warpgroup past the end needs none.
    const int last = end > first_query ? (end - 1) / kKeys : -1;
    skip_blocks<Places, kBias>(thread, block, last, k_place, v_place, bias_place);
    if (last < 0) {
      if (leader) barrier_arrive(Places::barrier(kQueriesEmpty));
      continue;
    }
    const bool table_sums = kBias && args.pairs.gradients != nullptr;
    [[maybe_unused]] int unit = 0;  // of this block
    [[maybe_unused]] unsigned largest = 0;
    if (table_sums) {
      unit = query_band_unit(args.pairs, item.sequence, first_query / kUnit, block);
      largest =
          args.pairs
              .largest[item.first_row / kPaddedRows + item.sequence + first_query / kPaddedRows];
    }
    const HeadSumEncoder encode(HeadSumScale(args.heads, largest));

    const auto multiply_scores = [&] {
      barrier_wait(Places::barrier(kKeysFull + k_place.index()), k_place.phase());
      wgmma_fence();
      multiply_columns<D, Config::kQueries, kKeys>(scores, q_operand, k_operand,
                                                   k_place.index() * Config::kKeyBytes);
    };
    const auto multiply_dweights = [&] {
      barrier_wait(Places::barrier(kValuesFull + v_place.index()), v_place.phase());
      wgmma_fence();
      multiply_columns<D, Config::kQueries, kKeys>(dweights, dout_operand, v_operand,
                                                   v_place.index() * Config::kKeyBytes);
    };
    const auto release_values = [&] {
      pin(dweights);
      if (leader) barrier_arrive(Places::barrier(kValuesEmpty + v_place.index()));
      v_place.advance();
    };
    const auto multiply_sums = [&](bool accumulate) {
      pin(grads);
      wgmma_fence();
      multiply_rows(sums, grads, sum_operand, k_place.index() * Config::kKeyBytes, accumulate);
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
      add_staged_bias<Config, Places, kBias>(thread, scores, args.half_alpha,
                                             Places::kBiases + unit_at, bias_place);
      TGR_UNROLL
      for (int i = 0; i < kKeys / 2; ++i) scores[i] = silu_parts(scores[i]).derivative;
      if (!kBias && first_key + kKeys - 1 > first_query) {
        hide_later_keys(thread, scores, first_query, first_key);
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
    for (bool accumulate = false;; accumulate = true) {
      // The values first: keys may still be on their way.
      multiply_dweights();
      multiply_scores();
      wgmma_wait<1>();
      release_values();
      wgmma_wait<0>();
      weigh();
      differentiate(dweights, scores, grads);
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

template <int D, class Config_, bool kBias_>
struct QueryGradientPass {
  using Config = Config_;
  using Places = QueryGradientPlaces<Config, kBias_>;
  static constexpr bool kBias = kBias_;
  static constexpr const char* kName = "attention dq";

  static __device__ __forceinline__ void load_queries(const AttentionArgs& args,
                                                      const AttentionItem& item, int row) {
    using Shape = PanelShape<D>;
    constexpr SharedAddress kFull = Places::barrier(kQueriesFull);
    barrier_expect(kFull, 2 * Config::kQueryBytes);
    for (int p = 0; p < Shape::kPanels; ++p) {
      const int at = p * Config::kQueries * Shape::kLineBytes;
      const int column = p * Shape::kColumns;
      load_box(Places::kQueries + at, &args.q_map, kFull, column, item.head, row);
      load_box(Places::kDouts + at, &args.dout_map, kFull, column, item.head, row);
    }
  }
  static __device__ __forceinline__ void consume(const AttentionArgs& args,
                                                 const AttentionItem& item) {
    query_gradient_consume<D, Config, kBias>(args, item);
  }
};

template <int D, class Config, bool kBias>
void launch_query_gradient(const AttentionArgs& args, cudaStream_t stream) {
  launch_query_tiles<D, QueryGradientPass<D, Config, kBias>>(args, stream);
}

}  // namespace turbogr::cuda
