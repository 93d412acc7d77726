// dK and dV by themselves, for head widths up to 128; dQ has a kernel of its own
// (attention_query_gradient.cuh). Nothing is added to memory, so the bits are the same every time.
// dK of one tile is still being multiplied when the scores of the next one begin.
#pragma once

#include "turbogr/ops/attention/hopper/attention_head_sums.cuh"
#include "turbogr/ops/attention/hopper/attention_key_tile.cuh"

namespace turbogr::cuda {

template <int D>
using KeyGradientConfig = NarrowConfig<D, true>;

template <int D, class Config, bool kBias>
__device__ __forceinline__ void key_gradient_consume(const AttentionArgs& args,
                                                     const BackwardState& state) {
  using Places = BackwardPlaces<Config, kBias>;
  constexpr int kQueries = Config::kQueries;
  const Consumer thread;
  const int group = thread.group;
  const bool leader = thread.leader;

  const NarrowOperands<D, Places> tiles(thread);
  const int lane_at = lane_score_offset(thread);

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
      multiply_columns<D, Config::kKeys, kQueries>(scores, tiles.k, tiles.q, stage);
      // dK of the tile before is done.
      wgmma_wait<1>();
      pin(grads);
      pin(dk);
      if (leader && release >= 0) {
        barrier_arrive(Places::barrier(kQueryEmpty + release));
        barrier_arrive(Places::barrier(kDoutEmpty + release));
      }
      wgmma_fence();
      multiply_columns<D, Config::kKeys, kQueries>(dweights, tiles.v, tiles.dout, stage);
      wgmma_wait<1>();
      pin(scores);
      weigh_stage<Config, Places, kBias>(thread, scores, weights, args.half_alpha, place, lane_at,
                                         ahead, left);
      if constexpr (kBias) {
        __syncwarp();
        if (thread.lane == 0) barrier_arrive(Places::barrier(kBiasEmpty + place.index()));
      }
      pin(weights);
      wgmma_fence();
      multiply_rows(dv, weights, tiles.dout, stage, true);
      wgmma_wait<1>();
      pin(dweights);
      differentiate(dweights, scores, grads);
      pin(grads);
      wgmma_fence();
      multiply_rows(dk, grads, tiles.q, stage, true);
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
    finish_narrow_tile<D, Config, Places>(thread, args, state, release, dk, dv);
  }
}

}  // namespace turbogr::cuda
