// Backward attention for head width 256, where dK and dV of 64 keys take half the registers. The
// two warpgroups split the queries of a block for the scores and the columns for everything else,
// so weights and their gradients both go through shared memory. Bound by shared memory and the
// tensor cores.
#pragma once

#include "turbogr/ops/attention/hopper/attention_head_sums.cuh"
#include "turbogr/ops/attention/hopper/attention_key_tile.cuh"

namespace turbogr::cuda {

template <int D, bool kSplit>
struct WideConfig : KeyTileConfig<D, 64, kSplit> {
  static constexpr bool kWide = true;
  static constexpr int kRegisters = 232;
  static constexpr int kScoreBuffers = 4;  // weights and gradients, two buffers of both
  static constexpr int kBiasBytes = 0;     // no room: read from the cache
};

template <int D, class Config, bool kBias>
__device__ __forceinline__ void wide_backward_consume(const AttentionArgs& args,
                                                      const BackwardState& state) {
  using Shape = PanelShape<D>;
  using Places = BackwardPlaces<Config, kBias>;
  constexpr int kPanelBytes = 64 * Shape::kLineBytes;
  constexpr int kShare = D / 2;  // columns of one warpgroup
  constexpr int kHalf = 32;      // queries of one warpgroup
  const int group = threadIdx.x / 128;
  const int thread = threadIdx.x % 128;
  const bool leader = thread == 0;
  const int lane = threadIdx.x % 32;
  const int thread_row = thread / 32 * 16 + lane / 4;
  const int share_bytes = group * kShare / Shape::kColumns * kPanelBytes;

  const Operand<D> k_operand(Places::kKeys, 16);
  const Operand<D> v_operand(Places::kValues, 16);
  const Operand<D> q_operand(Places::kQueries + group * kHalf * Shape::kLineBytes, 16);
  const Operand<D> dout_operand(Places::kDouts + group * kHalf * Shape::kLineBytes, 16);
  const Operand<D> k_share(Places::kKeys + share_bytes, kPanelBytes);
  const Operand<D> q_share(Places::kQueries + share_bytes, kPanelBytes);
  const Operand<D> dout_share(Places::kDouts + share_bytes, kPanelBytes);
  const Operand<64> score_operand(Places::kScores, 16);
  const int line = thread / 32 * 16 + lane % 16;
  const std::uint32_t line_address = Places::kScores + line * 128;
  const int line_piece = group * 4 + lane / 16;

  RingPlace<Config::kStages> place;
  int phase = 0;
  int buffer = 0;

  float scores[kHalf / 2];
  float dk[kShare / 2];
  float dv[kShare / 2];

  for (;;) {
    barrier_wait(Places::barrier(kKeyFull), phase);
    const AttentionItem item = state.item;
    if (item.length < 0) break;
    barrier_wait(Places::barrier(kValueFull), phase);
    phase ^= 1;
    const int first_key = item.block * Config::kKeys;
    const auto padded_tile = static_cast<std::int64_t>(item.first_row / kPaddedRows +
                                                       item.sequence + first_key / kPaddedRows);
    [[maybe_unused]] unsigned* largest = args.pairs.largest + padded_tile;
    float* dq = args.dq_sums + (padded_tile * args.heads + item.head) * (kPaddedRows * D) +
                (group * 128 + thread) * 4;
    TGR_UNROLL
    for (int i = 0; i < kShare / 2; ++i) dk[i] = dv[i] = 0;
    UnitWalk walk = walk_units<kBias>(args.pairs, item.sequence, first_key / kUnit);
    UnitWalk sums = walk;
    [[maybe_unused]] std::uint32_t bias[kHalf / 4];
    const auto load_bias = [&] {
      const char* unit = args.pairs.bias + walk.offset;
      TGR_UNROLL
      for (int i = 0; i < kHalf / 4; ++i) {
        const int at = piece_offset(thread_row + i % 2 * 8, group * 4 + i / 2) + lane % 4 * 4;
        bias[i] = __ldcg(reinterpret_cast<const unsigned*>(unit + at));
      }
      walk.advance();
    };
    if constexpr (kBias) load_bias();
    int release = -1;  // stage that the products in flight still read

    for (int query = first_key; query < item.length; query += Config::kQueries) {
      float dweights[kHalf / 2];
      const int stage = place.index() * Config::kQueryBytes;
      barrier_wait(Places::barrier(kQueryFull + place.index()), place.phase());
      barrier_wait(Places::barrier(kDoutFull + place.index()), place.phase());
      wgmma_fence();
      multiply_columns<D, 64, 64>(scores, k_operand, q_operand, stage);
      multiply_columns<D, 64, 64>(dweights, v_operand, dout_operand, stage);
      wgmma_wait<1>();
      pin(scores);
      pin(dk);
      pin(dv);
      if (leader && release >= 0) {
        barrier_arrive(Places::barrier(kQueryEmpty + release));
        barrier_arrive(Places::barrier(kDoutEmpty + release));
      }
      const int first_query = query + group * kHalf;
      const bool masked =
          !kBias && (first_query < first_key + 63 || first_query + kHalf > item.length);
      std::uint32_t weights[kHalf / 4];
      if constexpr (kBias) {
        weigh_backward<kHalf>(scores, weights, args.half_alpha, RegisterBias<kHalf / 4>{bias},
                              masked, first_key + thread_row - first_query,
                              item.length - first_query);
      } else {
        weigh_backward<kHalf>(scores, weights, args.half_alpha, NoBias{}, masked,
                              first_key + thread_row - first_query, item.length - first_query);
      }
      wgmma_wait<0>();
      pin(dweights);
      std::uint32_t grads[kHalf / 4];
      differentiate(dweights, scores, grads);
      const int weight_at = buffer * 2 * Config::kScoreBytes;
      const int grad_at = weight_at + Config::kScoreBytes;
      TGR_UNROLL
      for (int step = 0; step < kHalf / 16; ++step) {
        const int piece = ((2 * step + line_piece) ^ (line & 7)) * 16;
        store_blocks(line_address + weight_at + piece, weights + 4 * step);
        store_blocks(line_address + grad_at + piece, grads + 4 * step);
      }
      fence_async_proxy();
      // The other buffer is free to be written after the barrier.
      if (!Config::kSplit && kBias && threadIdx.x == 0) wait_stores_read<0>();
      named_barrier(1, 256);

      [[maybe_unused]] float share[kShare / 2];
      wgmma_fence();
      if constexpr (!Config::kSplit) {
        TGR_UNROLL
        for (int step = 0; step < 4; ++step) {
          Wgmma<kShare>::template ss<1, 1>(share, score_operand.at(grad_at + row_step<64>(step)),
                                           k_share.at(row_step<D>(step)), step != 0);
        }
        wgmma_commit();
      }
      TGR_UNROLL
      for (int step = 0; step < 4; ++step) {
        Wgmma<kShare>::template ss<0, 1>(dv, score_operand.at(weight_at + 32 * step),
                                         dout_share.at(stage + row_step<D>(step)), 1);
      }
      TGR_UNROLL
      for (int step = 0; step < 4; ++step) {
        Wgmma<kShare>::template ss<0, 1>(dk, score_operand.at(grad_at + 32 * step),
                                         q_share.at(stage + row_step<D>(step)), 1);
      }
      wgmma_commit();
      if constexpr (kBias) {
        // The next block's, while the tensor cores are busy.
        if (query + Config::kQueries < item.length) load_bias();
        if constexpr (Config::kSplit) {
          if (args.pairs.gradients != nullptr) {
            std::uint32_t pair = 0;
            TGR_UNROLL
            for (int i = 0; i < kHalf / 4; ++i) pair = larger_pair(pair, grads[i]);
            keep_largest(largest, pair);
            ++largest;
          }
        } else {
          if (threadIdx.x == 0 && args.pairs.gradients != nullptr) {
            add_bytes_bf16(args.pairs.gradients + sums.offset, Places::kScores + grad_at,
                           kUnitBytes);
          }
          sums.advance();
        }
      }
      if constexpr (!Config::kSplit) {
        wgmma_wait<1>();
        pin(share);
        TGR_UNROLL
        for (int i = 0; i < kShare / 8; ++i) {
          reduce_add(dq + i * 1024, share[4 * i], share[4 * i + 1], share[4 * i + 2],
                     share[4 * i + 3]);
        }
        dq += static_cast<std::int64_t>(args.heads) * (kPaddedRows * D);
      }
      release = place.index();
      place.advance();
      buffer ^= 1;
    }
    wgmma_wait<0>();
    pin(dk);
    pin(dv);
    if (leader) {
      barrier_arrive(Places::barrier(kValueEmpty));
      barrier_arrive(Places::barrier(kKeyEmpty));
      barrier_arrive(Places::barrier(kQueryEmpty + release));
      barrier_arrive(Places::barrier(kDoutEmpty + release));
    }
    store_key_gradients<kShare>(args, item, first_key, group * kShare, dk, dv);
  }
  if (!Config::kSplit && kBias && threadIdx.x == 0) wait_added();
}

}  // namespace turbogr::cuda
