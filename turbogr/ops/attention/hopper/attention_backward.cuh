// Backward attention for head widths up to 128, by tiles of keys (attention_key_tile.cuh): each
// warpgroup has 64 of them. The weights and their gradients are at once the register operands of
// dV += A^T dO and dK += dS^T Q; dS goes through shared memory for dQ = dS K, whose columns the two
// warpgroups share, and is added in f32 to a buffer that a second kernel converts. Bound by the
// tensor cores and shared memory.
#pragma once

#include "turbogr/ops/attention/hopper/attention_key_tile.cuh"

namespace turbogr::cuda {

template <int D>
using BackwardConfig = NarrowConfig<D, false>;

template <int D, class Config, bool kBias>
__device__ __forceinline__ void backward_consume(const AttentionArgs& args, BackwardState& state) {
  using Shape = PanelShape<D>;
  using Places = BackwardPlaces<Config, kBias>;
  constexpr int kQueries = Config::kQueries;
  constexpr int kShare = D / 2;  // columns of dQ that one warpgroup computes
  const Consumer thread;
  const int group = thread.group;
  const bool leader = thread.leader;

  const NarrowOperands<D, Places> tiles(thread);
  // dS lies as [keys][queries], lines of 128 bytes whatever D is.
  const Operand<64> score_operand(Places::kScores, 16);
  // K again, keys along the sum and this warpgroup's share of the columns.
  const Operand<D> share_operand(
      Places::kKeys + group * kShare / Shape::kColumns * Config::kKeys * Shape::kLineBytes +
          group * kShare % Shape::kColumns * 2,
      16);
  const int lane_at = lane_score_offset(thread);

  RingPlace<Config::kStages> place;
  int phase = 0;

  float scores[kQueries / 2];
  float dk[D / 2];
  float dv[D / 2];

  for (;;) {
    barrier_wait(Places::barrier(kKeyFull), phase);
    // The rest of the item is read again where it is wanted: registers are scarce.
    int left = state.item.length;
    if (left < 0) break;
    barrier_wait(Places::barrier(kValueFull), phase);
    phase ^= 1;
    left -= state.item.block * Config::kKeys;
    int ahead = -64 * group;  // of the tile's first query to the warpgroup's first key

    // In pieces of 16 bytes, to count in 32 bits.
    unsigned dq_at;
    {
      const unsigned tile = state.item.first_row / kPaddedRows + state.item.sequence +
                            state.item.block * (Config::kKeys / kPaddedRows);
      dq_at = (tile * args.heads + state.item.head) * (kPaddedRows * D / 4) + threadIdx.x;
    }
    TGR_UNROLL
    for (int i = 0; i < D / 2; ++i) dk[i] = dv[i] = 0;
    // The second warpgroup's begin one tile of queries later.
    if (kBias && leader) {
      state.sums[group] = walk_units<kBias>(args.pairs, state.item.sequence,
                                            state.item.block * (Config::kKeys / kUnit) + group);
    }

    for (; left > 0; left -= kQueries, ahead += kQueries) {
      std::uint32_t grads[kQueries / 4];
      barrier_wait(Places::barrier(kQueryFull + place.index()), place.phase());
      barrier_wait(Places::barrier(kDoutFull + place.index()), place.phase());
      const int stage = place.index() * Config::kQueryBytes;
      const int score_at = place.index() * Config::kScoreBytes;
      {
        float dweights[kQueries / 2];
        std::uint32_t weights[kQueries / 4];
        wgmma_fence();
        multiply_columns<D, Config::kKeys, kQueries>(scores, tiles.k, tiles.q, stage);
        multiply_columns<D, Config::kKeys, kQueries>(dweights, tiles.v, tiles.dout, stage);
        wgmma_wait<1>();
        pin(scores);

        weigh_stage<Config, Places, kBias>(thread, scores, weights, args.half_alpha, place, lane_at,
                                           ahead, left);
        pin(weights);
        wgmma_fence();
        multiply_rows(dv, weights, tiles.dout, stage, true);
        wgmma_wait<1>();
        pin(dweights);
        differentiate(dweights, scores, grads);
        TGR_UNROLL
        for (int step = 0; step < kQueries / 16; ++step) {
          store_blocks(Places::kScores + score_at + (lane_at ^ (32 * step)), grads + 4 * step);
        }
        fence_async_proxy();
      }
      // The other buffer is free to be written after the barrier.
      if (kBias && leader) wait_stores_read<0>();
      named_barrier(1, 256);

      float share[kShare / 2];
      wgmma_fence();
      TGR_UNROLL
      for (int step = 0; step < Config::kKeys / 16; ++step) {
        Wgmma<kShare>::template ss<1, 1>(share, score_operand.at(score_at + row_step<64>(step)),
                                         share_operand.at(row_step<D>(step)), step != 0);
      }
      wgmma_commit();
      pin(grads);
      wgmma_fence();
      multiply_rows(dk, grads, tiles.q, stage, true);
      if (kBias && leader) {
        barrier_arrive(Places::barrier(kBiasEmpty + place.index()));
        if (args.pairs.gradients != nullptr && ahead >= 0) {
          UnitWalk& sums = state.sums[group];
          add_bytes_bf16(args.pairs.gradients + sums.offset,
                         Places::kScores + score_at + group * kUnitBytes, kUnitBytes);
          sums.advance();
        }
      }
      wgmma_wait<1>();
      pin(share);
      pin(dv);
      if (leader) barrier_arrive(Places::barrier(kDoutEmpty + place.index()));
      float* dq = args.dq_sums + static_cast<std::int64_t>(dq_at) * 4;
      TGR_UNROLL
      for (int i = 0; i < kShare / 8; ++i) {
        reduce_add(dq + i * 1024, share[4 * i], share[4 * i + 1], share[4 * i + 2],
                   share[4 * i + 3]);
      }
      dq_at += args.heads * (kPaddedRows * D / 4);
      wgmma_wait<0>();
      pin(dk);
      if (leader) barrier_arrive(Places::barrier(kQueryEmpty + place.index()));
      place.advance();
    }
    finish_narrow_tile<D, Config, Places>(thread, args, state, 0, dk, dv);
  }
  if (kBias && leader) wait_added();
}

}  // namespace turbogr::cuda
