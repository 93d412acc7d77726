// dK and dV by themselves, for head widths up to 128; dQ has a kernel of its own
// (attention_query_gradient.cuh). Nothing is added to memory, so the bits are the same every time.
// A block is that of attention_backward.cuh: two warpgroups of 64 keys each walk the queries that
// see them. dK of one tile is still being multiplied when the scores of the next one begin.
#pragma once

#include "turbogr/ops/attention/hopper/attention_backward.cuh"
#include "turbogr/ops/attention/hopper/attention_head_sums.cuh"

namespace turbogr::cuda {

template <int D>
struct KeyGradientConfig {
  static constexpr bool kWide = false;
  static constexpr bool kSplit = true;
  static constexpr int kStages = 2;
  static constexpr int kKeys = 128;
  static constexpr int kQueries = 64;
  static constexpr int kThreads = 384;
  static constexpr int kRegisters = D == 128 ? 240 : 232;
  static constexpr int kKeyBytes = kKeys * D * 2;
  static constexpr int kQueryBytes = kQueries * D * 2;
  static constexpr int kScoreBytes = kKeys * kQueries * 2;
  static constexpr int kScoreBuffers = 0;  // gradients of scores stay in registers
  static constexpr int kBiasBytes = kStages * kScoreBytes;
};

template <int D, class Config, bool kBias>
__device__ __forceinline__ void key_gradient_consume(const AttentionArgs& args,
                                                     const BackwardState& state) {
  using Shape = PanelShape<D>;
  using Places = BackwardPlaces<Config, kBias>;
  constexpr int kQueries = Config::kQueries;
  constexpr int kPanelBytes = kQueries * Shape::kLineBytes;
  const int group = threadIdx.x / 128;
  const bool leader = threadIdx.x % 128 == 0;
  const int lane = threadIdx.x % 32;

  const Operand<D> k_operand(Places::kKeys + group * 64 * Shape::kLineBytes, 16);
  const Operand<D> v_operand(Places::kValues + group * 64 * Shape::kLineBytes, 16);
  const Operand<D> q_operand(Places::kQueries, kPanelBytes);
  const Operand<D> dout_operand(Places::kDouts, kPanelBytes);
  const int line = threadIdx.x / 32 * 16 + lane % 16;
  const int lane_at = piece_offset(line, lane / 16);

  RingPlace<Config::kStages> place;
  int phase = 0;

  float scores[kQueries / 2];
  float dk[D / 2];
  float dv[D / 2];

  for (;;) {
    barrier_wait(Places::barrier(kKeyFull), phase);
    int left = state.item.length;
    if (left < 0) break;
    barrier_wait(Places::barrier(kValueFull), phase);
    phase ^= 1;
    left -= state.item.block * Config::kKeys;
    int ahead = -64 * group;  // of the tile's first query to the warpgroup's first key
    [[maybe_unused]] int query_tile = state.item.first_row / kPaddedRows + state.item.sequence +
                                      state.item.block * (Config::kKeys / kPaddedRows);
    TGR_UNROLL
    for (int i = 0; i < D / 2; ++i) dk[i] = dv[i] = 0;
    std::uint32_t grads[kQueries / 4] = {};
    int release = -1;  // stage that the products in flight still read

    for (; left > 0; left -= kQueries, ahead += kQueries) {
      float dweights[kQueries / 2];
      std::uint32_t weights[kQueries / 4];
      barrier_wait(Places::barrier(kQueryFull + place.index()), place.phase());
      barrier_wait(Places::barrier(kDoutFull + place.index()), place.phase());
      const int stage = place.index() * Config::kQueryBytes;
      wgmma_fence();
      TGR_UNROLL
      for (int step = 0; step < D / 16; ++step) {
        Wgmma<kQueries>::template ss<0, 0>(
            scores, k_operand.at(column_step<D, Config::kKeys>(step)),
            q_operand.at(stage + column_step<D, kQueries>(step)), step != 0);
      }
      wgmma_commit();
      // dK of the tile before is done.
      wgmma_wait<1>();
      pin(grads);
      pin(dk);
      if (leader && release >= 0) {
        barrier_arrive(Places::barrier(kQueryEmpty + release));
        barrier_arrive(Places::barrier(kDoutEmpty + release));
      }
      wgmma_fence();
      TGR_UNROLL
      for (int step = 0; step < D / 16; ++step) {
        Wgmma<kQueries>::template ss<0, 0>(
            dweights, v_operand.at(column_step<D, Config::kKeys>(step)),
            dout_operand.at(stage + column_step<D, kQueries>(step)), step != 0);
      }
      wgmma_commit();
      wgmma_wait<1>();
      pin(scores);
      if constexpr (kBias) {
        barrier_wait(Places::barrier(kBiasFull + place.index()), place.phase());
        // The second warpgroup sees none of the first queries, and there is no bias to say so.
        const SharedAddress bias =
            ahead < 0 ? Places::kHiddenLine
                      : Places::kBiases + place.index() * Config::kScoreBytes + lane_at;
        weigh_backward<kQueries>(scores, weights, args.half_alpha, SharedBias{bias}, false, 0, 0);
        __syncwarp();
        if (lane == 0) barrier_arrive(Places::barrier(kBiasEmpty + place.index()));
      } else {
        const int thread_row = threadIdx.x / 32 % 4 * 16 + lane / 4;
        weigh_backward<kQueries>(scores, weights, args.half_alpha, NoBias{},
                                 ahead < 63 || left < kQueries, thread_row - ahead, left);
      }
      pin(weights);
      wgmma_fence();
      TGR_UNROLL
      for (int step = 0; step < kQueries / 16; ++step) {
        Wgmma<D>::template rs<1>(dv, weights + 4 * step, dout_operand.at(stage + row_step<D>(step)),
                                 1);
      }
      wgmma_commit();
      wgmma_wait<1>();
      pin(dweights);
      TGR_UNROLL
      for (int i = 0; i < kQueries / 2; ++i) dweights[i] *= scores[i];
      TGR_UNROLL
      for (int i = 0; i < kQueries / 4; ++i) {
        grads[i] = pack_bf16(dweights[2 * i], dweights[2 * i + 1]);
      }
      pin(grads);
      wgmma_fence();
      TGR_UNROLL
      for (int step = 0; step < kQueries / 16; ++step) {
        Wgmma<D>::template rs<1>(dk, grads + 4 * step, q_operand.at(stage + row_step<D>(step)), 1);
      }
      wgmma_commit();
      if constexpr (kBias) {
        if (args.pairs.gradients != nullptr) {
          std::uint32_t pair = 0;
          TGR_UNROLL
          for (int i = 0; i < kQueries / 4; ++i) pair = larger_pair(pair, grads[i]);
          keep_largest(args.pairs.largest + query_tile, pair);
          ++query_tile;
        }
      }
      // dV is done: its weights would take registers that the next scores need.
      wgmma_wait<1>();
      pin(dv);
      release = place.index();
      place.advance();
    }
    wgmma_wait<0>();
    pin(grads);
    pin(dk);
    const AttentionItem item = state.item;
    // All of the warpgroup have read it before the producer writes the next one.
    named_barrier(2 + group, 128);
    if (leader) {
      barrier_arrive(Places::barrier(kQueryEmpty + release));
      barrier_arrive(Places::barrier(kDoutEmpty + release));
      barrier_arrive(Places::barrier(kValueEmpty));
      barrier_arrive(Places::barrier(kKeyEmpty));
    }
    const int first_key = item.block * Config::kKeys + 64 * group;
    if (first_key < item.length) {
      const std::int64_t row = item.first_row + first_key;
      store_tile<D>(dv, args.output_scale,
                    static_cast<__nv_bfloat16*>(args.dv) + row * args.dv_stride +
                        item.head * args.value_width,
                    args.dv_stride, item.length - first_key, args.value_width);
      store_tile<D>(dk, args.score_scale,
                    static_cast<__nv_bfloat16*>(args.dk) + row * args.dk_stride +
                        item.head * args.query_width,
                    args.dk_stride, item.length - first_key, args.query_width);
    }
  }
}

}  // namespace turbogr::cuda
