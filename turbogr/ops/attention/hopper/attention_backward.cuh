// Backward attention for head widths up to 128. A block is a producer and two warpgroups of 64 keys
// each; it keeps a block of keys and walks the queries that see it. With scores transposed (keys
// are rows), the weights and their gradients are at once the register operands of dV += A^T dO and
// dK += dS^T Q; dS goes through shared memory for dQ = dS K, whose columns the two warpgroups
// share, and is added in f32 to a buffer that a second kernel converts. Bound by the tensor cores
// and shared memory.
#pragma once

#include "turbogr/cuda/check.cuh"
#include "turbogr/cuda/wgmma.cuh"
#include "turbogr/ops/attention/hopper/attention_pairs.cuh"
#include "turbogr/ops/attention/hopper/attention_tile.cuh"

namespace turbogr::cuda {

template <int D, int kStages_>
struct BackwardConfig {
  static constexpr bool kWide = false;
  static constexpr bool kSplit = false;
  static constexpr int kStages = kStages_;
  static constexpr int kKeys = 128;
  static constexpr int kQueries = 64;
  static constexpr int kThreads = 384;
  // Of a consumer; the producers have what is left of 3 x 168.
  static constexpr int kRegisters = D == 128 ? 240 : 232;
  static constexpr int kKeyBytes = kKeys * D * 2;
  static constexpr int kQueryBytes = kQueries * D * 2;
  static constexpr int kScoreBytes = kKeys * kQueries * 2;
  static constexpr int kScoreBuffers = 2;
  static constexpr int kBiasBytes = kStages * kScoreBytes;
};

// Barriers by number; those of a ring have one a stage.
enum BackwardBarrier : int {
  kItemFull,
  kKeyFull,
  kKeyEmpty,
  kValueFull,
  kValueEmpty,
  kQueryFull,
  kQueryEmpty = kQueryFull + 2,
  kDoutFull = kQueryEmpty + 2,
  kDoutEmpty = kDoutFull + 2,
  kBiasFull = kDoutEmpty + 2,
  kBiasEmpty = kBiasFull + 2,
  kBackwardBarriers = kBiasEmpty + 2,
};

struct BackwardState {
  AttentionItem item;
  // Where the two warpgroups' sums over heads are: here, because only their leaders want them.
  UnitWalk sums[2];
};

// What lies where in shared memory.
template <class Config, bool kBias>
struct BackwardPlaces {
  static_assert(Config::kStages == 2);
  static constexpr SharedAddress kKeys = kSharedStart;
  static constexpr SharedAddress kValues = kKeys + Config::kKeyBytes;
  static constexpr SharedAddress kQueries = kValues + Config::kKeyBytes;
  static constexpr SharedAddress kDouts = kQueries + Config::kStages * Config::kQueryBytes;
  static constexpr SharedAddress kScores = kDouts + Config::kStages * Config::kQueryBytes;
  static constexpr SharedAddress kBiases = kScores + Config::kScoreBuffers * Config::kScoreBytes;
  static constexpr SharedAddress kHiddenLine = kBiases + (kBias ? Config::kBiasBytes : 0);
  static constexpr SharedAddress kBarriers =
      kHiddenLine + (kBias && !Config::kWide ? kLineBytes : 0);
  static constexpr SharedAddress kState = kBarriers + (kBackwardBarriers + 1) / 2 * 16;
  static constexpr int kBytes = kState + sizeof(BackwardState) - kSharedStart;

  __device__ static constexpr SharedAddress barrier(int number) { return kBarriers + 8 * number; }
};

// SiLU and its derivative from h = x / 2, by one tanh.
struct SiluParts {
  float value;       // SiLU(x)
  float derivative;  // twice SiLU'(x); the factor 1/2 is in the epilogues
};
__device__ __forceinline__ SiluParts silu_parts(float h) {
  const float t = tanh_approximate(h);
  return {fmaf(h, t, h), fmaf(h, fmaf(-t, t, 1.f), 1.f + t)};
}

// From scores of N queries to packed weights and, in place, twice SiLU's derivative. Rows
// are keys: the thread's first row is seen in columns first up to end, the second 8 further in. A
// bias hides by itself what is not seen.
template <int N, class Bias>
__device__ __forceinline__ void weigh_backward(float (&scores)[N / 2],
                                               std::uint32_t (&weights)[N / 4], float half_alpha,
                                               const Bias& bias, bool masked, int first, int end) {
  add_bias(scores, half_alpha, bias);
  first -= 2 * (threadIdx.x % 4);
  end -= 2 * (threadIdx.x % 4);
  TGR_UNROLL
  for (int i = 0; i < N / 2; i += 2) {
    SiluParts a = silu_parts(scores[i]);
    SiluParts b = silu_parts(scores[i + 1]);
    if (!Bias::kThere && masked) {
      const int column = i / 4 * 8;
      const int start = first + i / 2 % 2 * 8;
      if (column < start || column >= end) a = {0, 0};
      if (column + 1 < start || column + 1 >= end) b = {0, 0};
    }
    weights[i / 2] = pack_bf16(a.value, b.value);
    scores[i] = a.derivative;
    scores[i + 1] = b.derivative;
  }
}

template <int D, class Config, class Places>
__device__ __forceinline__ void backward_produce(const AttentionArgs& args, BackwardState& state) {
  using Shape = PanelShape<D>;
  constexpr int kKeyPanel = Config::kKeys * Shape::kLineBytes;
  constexpr int kQueryPanel = Config::kQueries * Shape::kLineBytes;
  RingPlace<Config::kStages> place;
  int phase = 0;
  ItemSource source(args);
  for (;;) {
    AttentionItem item;
    const bool more = source.take(item);
    int row = item.first_row + item.block * Config::kKeys;
    barrier_wait(Places::barrier(kValueEmpty), phase ^ 1);
    if (more) {
      barrier_expect(Places::barrier(kValueFull), Config::kKeyBytes);
      for (int p = 0; p < Shape::kPanels; ++p) {
        load_box(Places::kValues + p * kKeyPanel, &args.v_map, Places::barrier(kValueFull),
                 p * Shape::kColumns, item.head, row);
      }
    }
    barrier_wait(Places::barrier(kKeyEmpty), phase ^ 1);
    if (!more) item.length = -1;
    state.item = item;
    barrier_arrive(Places::barrier(kItemFull));
    if (!more) {
      barrier_arrive(Places::barrier(kKeyFull));
      break;
    }
    barrier_expect(Places::barrier(kKeyFull), Config::kKeyBytes);
    for (int p = 0; p < Shape::kPanels; ++p) {
      load_box(Places::kKeys + p * kKeyPanel, &args.k_map, Places::barrier(kKeyFull),
               p * Shape::kColumns, item.head, row);
    }
    phase ^= 1;
    const int end = item.first_row + item.length;
#pragma unroll 1
    for (; row < end; row += Config::kQueries) {
      const int stage = place.index();
      const int at = stage * Config::kQueryBytes;
      barrier_wait(Places::barrier(kQueryEmpty + stage), place.phase() ^ 1);
      barrier_expect(Places::barrier(kQueryFull + stage), Config::kQueryBytes);
      for (int p = 0; p < Shape::kPanels; ++p) {
        load_box(Places::kQueries + at + p * kQueryPanel, &args.q_map,
                 Places::barrier(kQueryFull + stage), p * Shape::kColumns, item.head, row);
      }
      barrier_wait(Places::barrier(kDoutEmpty + stage), place.phase() ^ 1);
      barrier_expect(Places::barrier(kDoutFull + stage), Config::kQueryBytes);
      for (int p = 0; p < Shape::kPanels; ++p) {
        load_box(Places::kDouts + at + p * kQueryPanel, &args.dout_map,
                 Places::barrier(kDoutFull + stage), p * Shape::kColumns, item.head, row);
      }
      place.advance();
    }
  }
  source.finish();
}

// Another thread brings the bias: one has too few registers for both.
template <class Config, class Places>
__device__ __forceinline__ void produce_bias(const AttentionArgs& args,
                                             const BackwardState& state) {
  RingPlace<Config::kStages> place;
  int phase = 0;
  for (;;) {
    barrier_wait(Places::barrier(kItemFull), phase);
    phase ^= 1;
    const AttentionItem item = state.item;
    barrier_arrive(Places::barrier(kKeyEmpty));
    if (item.length < 0) break;
    const int first_key = item.block * Config::kKeys;
    UnitWalk walk = walk_units<true>(args.pairs, item.sequence, first_key / kUnit);
    // The second warpgroup has none before its own first key.
    int bytes = kUnitBytes;
#pragma unroll 1
    for (int left = item.length - first_key; left > 0; left -= Config::kQueries) {
      const int stage = place.index();
      barrier_wait(Places::barrier(kBiasEmpty + stage), place.phase() ^ 1);
      barrier_expect(Places::barrier(kBiasFull + stage), bytes);
      load_bytes(Places::kBiases + stage * Config::kScoreBytes, args.pairs.bias + walk.offset,
                 bytes, Places::barrier(kBiasFull + stage));
      bytes = Config::kScoreBytes;
      walk.advance();
      place.advance();
    }
  }
}

template <int D, class Config, bool kBias>
__device__ __forceinline__ void backward_consume(const AttentionArgs& args, BackwardState& state) {
  using Shape = PanelShape<D>;
  using Places = BackwardPlaces<Config, kBias>;
  constexpr int kQueries = Config::kQueries;
  constexpr int kPanelBytes = kQueries * Shape::kLineBytes;
  constexpr int kShare = D / 2;  // columns of dQ that one warpgroup computes
  const int group = threadIdx.x / 128;
  const bool leader = threadIdx.x % 128 == 0;
  const int lane = threadIdx.x % 32;

  const Operand<D> k_operand(Places::kKeys + group * 64 * Shape::kLineBytes, 16);
  const Operand<D> v_operand(Places::kValues + group * 64 * Shape::kLineBytes, 16);
  const Operand<D> q_operand(Places::kQueries, kPanelBytes);
  const Operand<D> dout_operand(Places::kDouts, kPanelBytes);
  // dS lies as [keys][queries], lines of 128 bytes whatever D is.
  const Operand<64> score_operand(Places::kScores, 16);
  // K again, keys along the sum and this warpgroup's share of the columns.
  const Operand<D> share_operand(
      Places::kKeys + group * kShare / Shape::kColumns * Config::kKeys * Shape::kLineBytes +
          group * kShare % Shape::kColumns * 2,
      16);
  // Where this lane's line of four 8 x 8 blocks begins in a tile of scores. The swizzle exchanges
  // pieces of 16 bytes, so that those of the next 16 queries are one bit away.
  const int line = threadIdx.x / 32 * 16 + lane % 16;
  const int lane_at = piece_offset(line, lane / 16);

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
        TGR_UNROLL
        for (int step = 0; step < D / 16; ++step) {
          Wgmma<kQueries>::template ss<0, 0>(
              scores, k_operand.at(column_step<D, Config::kKeys>(step)),
              q_operand.at(stage + column_step<D, kQueries>(step)), step != 0);
        }
        wgmma_commit();
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
              ahead < 0 ? Places::kHiddenLine : Places::kBiases + score_at + lane_at;
          weigh_backward<kQueries>(scores, weights, args.half_alpha, SharedBias{bias}, false, 0, 0);
        } else {
          const int thread_row = threadIdx.x / 32 % 4 * 16 + lane / 4;
          weigh_backward<kQueries>(scores, weights, args.half_alpha, NoBias{},
                                   ahead < 63 || left < kQueries, thread_row - ahead, left);
        }
        pin(weights);
        wgmma_fence();
        TGR_UNROLL
        for (int step = 0; step < kQueries / 16; ++step) {
          Wgmma<D>::template rs<1>(dv, weights + 4 * step,
                                   dout_operand.at(stage + row_step<D>(step)), 1);
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
      TGR_UNROLL
      for (int step = 0; step < kQueries / 16; ++step) {
        Wgmma<D>::template rs<1>(dk, grads + 4 * step, q_operand.at(stage + row_step<D>(step)), 1);
      }
      wgmma_commit();
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
    const AttentionItem item = state.item;
    // All of the warpgroup have read it before the producer writes the next one.
    named_barrier(2 + group, 128);
    if (leader) {
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
  if (kBias && leader) wait_added();
}

}  // namespace turbogr::cuda
