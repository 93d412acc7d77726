// Forward attention, by tiles of queries (attention_query_tile.cuh): a consumer multiplies by V
// while it applies SiLU to the next scores. Bound by the tensor cores at width 128 and above, by
// special functions and shared memory at 64.
#pragma once

#include "turbogr/ops/attention/hopper/attention_query_tile.cuh"

namespace turbogr::cuda {

template <int D, int kConsumers, int kKeys, int kStages_, int kBlocksPerSm>
struct ForwardConfig : QueryTileConfig<D, kConsumers, kKeys, kStages_, kBlocksPerSm> {
  static constexpr int kStages = kStages_;
  // One after the other where the producer has few registers.
  static constexpr int kProducerUnroll = kBlocksPerSm == 1 ? 1 : 4;

  // Keys, values and bias go round together: one register.
  struct Rings {
    RingPlace<kStages> place;
    __device__ __forceinline__ const RingPlace<kStages>& keys() const { return place; }
    __device__ __forceinline__ const RingPlace<kStages>& values() const { return place; }
    __device__ __forceinline__ const RingPlace<kStages>& units() const { return place; }
    __device__ __forceinline__ void advance() { place.advance(); }
  };
};

// What lies where in shared memory.
template <class Config, bool kBias>
struct ForwardTiles {
  static_assert(Config::kStages == 2);
  static constexpr SharedAddress kQueries = kSharedStart;
  static constexpr SharedAddress kKeys = kQueries + Config::kQueryBytes;
  static constexpr SharedAddress kValues = kKeys + Config::kStages * Config::kKeyBytes;
  static constexpr SharedAddress kBiases = kValues + Config::kStages * Config::kKeyBytes;
  static constexpr SharedAddress kEnd = kBiases + (kBias ? Config::kBiasBytes : 0);
};
template <class Config, bool kBias>
struct ForwardPlaces : ForwardTiles<Config, kBias>,
                       QueryTileEnd<ForwardTiles<Config, kBias>::kEnd> {};

template <int D, class Config, bool kBias>
__device__ __forceinline__ void forward_consume(const AttentionArgs& args,
                                                const AttentionItem& shared_item) {
  using Places = ForwardPlaces<Config, kBias>;
  using Shape = PanelShape<D>;
  constexpr int kKeys = Config::kKeys;
  constexpr int kPanelBytes = kKeys * Shape::kLineBytes;
  const Consumer thread;
  const int group = thread.group;
  const bool leader = thread.leader;
  const Operand<D> q_operand(Places::kQueries + group * 64 * Shape::kLineBytes, 16);
  const Operand<D> k_operand(Places::kKeys, 16);
  const Operand<D> v_operand(Places::kValues, kPanelBytes);
  RingPlace<Config::kStages> k_place;
  RingPlace<Config::kStages> v_place;
  RingPlace<Config::kStages> bias_place;
  int q_phase = 0;
  const SharedAddress bias_line = Places::kBiases + lane_unit_offset<Config>(thread);

  float scores[kKeys / 2];
  float sums[D / 2];
  std::uint32_t weights[kKeys / 4];

  const auto multiply_scores = [&] {
    const int k_at = k_place.index() * Config::kKeyBytes;
    multiply_columns<D, Config::kQueries, kKeys>(scores, q_operand, k_operand, k_at);
  };
  const auto multiply_values = [&](bool accumulate) {
    const int v_at = v_place.index() * Config::kKeyBytes;
    multiply_rows(sums, weights, v_operand, v_at, accumulate);
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
    // A warpgroup past the end needs none.
    const int last = end > first_query ? (end - 1) / kKeys : -1;
    skip_blocks<Places, kBias>(thread, block, last, k_place, v_place, bias_place);
    if (last < 0) {
      if (leader) barrier_arrive(Places::barrier(kQueriesEmpty));
      continue;
    }

    const auto weigh = [&] {
      const int first_key = block * kKeys;
      add_staged_bias<Config, Places, kBias>(thread, scores, args.half_alpha, bias_line,
                                             bias_place);
      TGR_UNROLL
      for (int i = 0; i < kKeys / 2; ++i) scores[i] = silu_of_half(scores[i]);
      if (first_key + kKeys - 1 > first_query)
        hide_later_keys(thread, scores, first_query, first_key);
    };

    barrier_wait(Places::barrier(kKeysFull + k_place.index()), k_place.phase());
    wgmma_fence();
    multiply_scores();
    wgmma_wait<0>();
    pin(scores);
    if (leader) barrier_arrive(Places::barrier(kKeysEmpty + k_place.index()));
    k_place.advance();
    weigh();
    pack_pairs(scores, weights);
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
      pack_pairs(scores, weights);
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

template <int D, class Config_, bool kBias_>
struct ForwardPass {
  using Config = Config_;
  using Places = ForwardPlaces<Config, kBias_>;
  static constexpr bool kBias = kBias_;
  static constexpr const char* kName = "attention forward";

  static __device__ __forceinline__ void load_queries(const AttentionArgs& args,
                                                      const AttentionItem& item, int row) {
    load_tile<D, Config::kQueries>(Places::kQueries, &args.q_map, Places::barrier(kQueriesFull),
                                   item.head, row);
  }
  static __device__ __forceinline__ void consume(const AttentionArgs& args,
                                                 const AttentionItem& item) {
    forward_consume<D, Config, kBias>(args, item);
  }
};

template <int D, class Config, bool kBias>
void launch_forward(const AttentionArgs& args, cudaStream_t stream) {
  launch_query_tiles<D, ForwardPass<D, Config, kBias>>(args, stream);
}

}  // namespace turbogr::cuda
