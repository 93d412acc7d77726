// Backward attention for head widths up to 128. A block is a producer and two warpgroups of 64 keys
// each; it keeps a block of keys and walks the queries that see it. With scores transposed (keys
// are rows), the weights and their gradients are at once the register operands of dV += A^T dO and
// dK += dS^T Q; dS goes through shared memory for dQ = dS K, whose columns the two warpgroups
// share, and is added in f32 to a buffer that a second kernel converts. Bound by the tensor cores
// and shared memory.
#pragma once

#include "turbogr/cuda/attention_pairs.cuh"
#include "turbogr/cuda/attention_tile.cuh"
#include "turbogr/cuda/check.cuh"
#include "turbogr/cuda/wgmma.cuh"

namespace turbogr::cuda {

template <int D, int kStages_>
struct BackwardConfig {
  static constexpr bool kWide = false;
  static constexpr int kStages = kStages_;
  static constexpr int kKeys = 128;
  static constexpr int kQueries = 64;
  static constexpr int kThreads = 384;
  // Of a consumer; the producers have what is left of 3 x 168. They spill with 24, but consumers of
  // width 128 would with less than 240.
  static constexpr int kRegisters = D == 128 ? 240 : 232;
  static constexpr int kKeyBytes = kKeys * D * 2;
  static constexpr int kQueryBytes = kQueries * D * 2;
  static constexpr int kScoreBytes = kKeys * kQueries * 2;
  static constexpr int kSharedBytes =
      1024 + 2 * kKeyBytes + 2 * kStages * kQueryBytes + 2 * kScoreBytes;
  static constexpr int kBiasBytes = kStages * kScoreBytes;
};

struct BackwardBarriers {
  std::uint64_t item_full, k_full, k_empty, v_full, v_empty;
  std::uint64_t q_full[3], q_empty[3], dout_full[3], dout_empty[3], bias_full[3], bias_empty[3];
  AttentionItem item;
  // Where the two warpgroups' sums over heads are: here, because only their leaders want them.
  UnitWalk sums[2];
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
// bias hides what is not seen by itself; only where it has no tile is all of it hidden by `masked`.
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
  if (Bias::kThere && masked) {
    TGR_UNROLL
    for (int i = 0; i < N / 4; ++i) weights[i] = 0;
    TGR_UNROLL
    for (int i = 0; i < N / 2; ++i) scores[i] = 0;
  }
}

template <int D, class Config>
__device__ __forceinline__ void backward_produce(const AttentionArgs& args, char* k_tile,
                                                 char* v_tile, char* q_tiles, char* dout_tiles,
                                                 BackwardBarriers& bar) {
  using Shape = PanelShape<D>;
  RingPlace<Config::kStages> place;
  int phase = 0;
  ItemSource source(args);
  for (;;) {
    AttentionItem item;
    const bool more = source.take(item);
    barrier_wait(&bar.v_empty, phase ^ 1);
    if (more) {
      barrier_expect(&bar.v_full, Config::kKeyBytes);
      for (int p = 0; p < Shape::kPanels; ++p) {
        load_box(v_tile + p * Config::kKeys * Shape::kLineBytes, &args.v_map, &bar.v_full,
                 p * Shape::kColumns, item.head, item.first_row + item.block * Config::kKeys);
      }
    }
    barrier_wait(&bar.k_empty, phase ^ 1);
    if (!more) item.length = -1;
    bar.item = item;
    barrier_arrive(&bar.item_full);
    if (!more) {
      barrier_arrive(&bar.k_full);
      break;
    }
    barrier_expect(&bar.k_full, Config::kKeyBytes);
    for (int p = 0; p < Shape::kPanels; ++p) {
      load_box(k_tile + p * Config::kKeys * Shape::kLineBytes, &args.k_map, &bar.k_full,
               p * Shape::kColumns, item.head, item.first_row + item.block * Config::kKeys);
    }
    phase ^= 1;
    for (int query = item.block * Config::kKeys; query < item.length; query += Config::kQueries) {
      const int row = item.first_row + query;
      char* q_tile = q_tiles + place.index * Config::kQueryBytes;
      char* dout_tile = dout_tiles + place.index * Config::kQueryBytes;
      barrier_wait(&bar.q_empty[place.index], place.phase ^ 1);
      barrier_expect(&bar.q_full[place.index], Config::kQueryBytes);
      for (int p = 0; p < Shape::kPanels; ++p) {
        load_box(q_tile + p * Config::kQueries * Shape::kLineBytes, &args.q_map,
                 &bar.q_full[place.index], p * Shape::kColumns, item.head, row);
      }
      barrier_wait(&bar.dout_empty[place.index], place.phase ^ 1);
      barrier_expect(&bar.dout_full[place.index], Config::kQueryBytes);
      for (int p = 0; p < Shape::kPanels; ++p) {
        load_box(dout_tile + p * Config::kQueries * Shape::kLineBytes, &args.dout_map,
                 &bar.dout_full[place.index], p * Shape::kColumns, item.head, row);
      }
      place.advance();
    }
  }
  source.finish();
}

// Another thread brings the bias: one has too few registers for both.
template <class Config>
__device__ __forceinline__ void produce_bias(const AttentionArgs& args, char* bias_tiles,
                                             BackwardBarriers& bar) {
  RingPlace<Config::kStages> place;
  int phase = 0;
  for (;;) {
    barrier_wait(&bar.item_full, phase);
    phase ^= 1;
    const AttentionItem item = bar.item;
    barrier_arrive(&bar.k_empty);
    if (item.length < 0) break;
    const int first_key = item.block * Config::kKeys;
    UnitWalk walk = walk_units<true>(args.pairs, item.sequence, first_key / kUnit);
    for (int query = first_key; query < item.length; query += Config::kQueries) {
      // The second warpgroup has none before its own first key.
      const int bytes = query > first_key ? Config::kScoreBytes : kUnitBytes;
      barrier_wait(&bar.bias_empty[place.index], place.phase ^ 1);
      barrier_expect(&bar.bias_full[place.index], bytes);
      load_bytes(bias_tiles + place.index * Config::kScoreBytes, args.pairs.bias + walk.offset,
                 bytes, &bar.bias_full[place.index]);
      walk.advance();
      place.advance();
    }
  }
}

template <int D, class Config, bool kBias>
__device__ __forceinline__ void backward_consume(const AttentionArgs& args, char* k_tile,
                                                 char* v_tile, char* q_tiles, char* dout_tiles,
                                                 char* score_tiles,
                                                 [[maybe_unused]] const char* bias_tiles,
                                                 BackwardBarriers& bar) {
  using Shape = PanelShape<D>;
  constexpr int kQueries = Config::kQueries;
  constexpr int kPanelBytes = kQueries * Shape::kLineBytes;
  constexpr int kShare = D / 2;  // columns of dQ that one warpgroup computes
  const int group = threadIdx.x / 128;
  const int thread = threadIdx.x % 128;
  const bool leader = thread == 0;
  const int lane = threadIdx.x % 32;
  const int thread_row = thread / 32 * 16 + lane / 4;

  const Operand<D> k_operand(k_tile + group * 64 * Shape::kLineBytes, 16);
  const Operand<D> v_operand(v_tile + group * 64 * Shape::kLineBytes, 16);
  const Operand<D> q_operand(q_tiles, kPanelBytes);
  const Operand<D> dout_operand(dout_tiles, kPanelBytes);
  // dS lies as [keys][queries], lines of 128 bytes whatever D is.
  const Operand<64> score_operand(score_tiles, 16);
  // K again, keys along the sum and this warpgroup's share of the columns.
  const Operand<D> share_operand(
      k_tile + group * kShare / Shape::kColumns * Config::kKeys * Shape::kLineBytes +
          group * kShare % Shape::kColumns * 2,
      16);
  // Where this lane's line of four 8 x 8 blocks goes; the swizzle exchanges 16-byte pieces.
  const int line = group * 64 + thread / 32 * 16 + lane % 16;
  const std::uint32_t line_address = shared_address(score_tiles) + line * 128;
  const int line_piece = lane / 16;

  RingPlace<Config::kStages> place;
  int phase = 0;
  int buffer = 0;

  float scores[kQueries / 2];
  float dk[D / 2];
  float dv[D / 2];

  for (;;) {
    barrier_wait(&bar.k_full, phase);
    // The rest of the item is read again where it is wanted: registers are scarce.
    const int length = bar.item.length;
    if (length < 0) break;
    barrier_wait(&bar.v_full, phase);
    phase ^= 1;
    const int tile_key = bar.item.block * Config::kKeys;
    const int first_key = tile_key + 64 * group;

    const auto padded_tile = static_cast<std::int64_t>(bar.item.first_row / kPaddedRows +
                                                       bar.item.sequence + tile_key / kPaddedRows);
    float* dq = args.dq_sums + (padded_tile * args.heads + bar.item.head) * (kPaddedRows * D) +
                (group * 128 + thread) * 4;
    TGR_UNROLL
    for (int i = 0; i < D / 2; ++i) dk[i] = dv[i] = 0;
    // The second warpgroup's begin one tile of queries later.
    if (kBias && leader) {
      bar.sums[group] = walk_units<kBias>(args.pairs, bar.item.sequence, first_key / kUnit);
    }

    for (int query = tile_key; query < length; query += kQueries) {
      std::uint32_t grads[kQueries / 4];
      barrier_wait(&bar.q_full[place.index], place.phase);
      barrier_wait(&bar.dout_full[place.index], place.phase);
      const int stage = place.index * Config::kQueryBytes;
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

        const bool masked =
            kBias ? query < first_key : query < first_key + 63 || query + kQueries > length;
        if constexpr (kBias) {
          barrier_wait(&bar.bias_full[place.index], place.phase);
          const SharedBias bias{
              shared_address(bias_tiles) + place.index * Config::kScoreBytes + line * kLineBytes,
              line_piece, line & 7};
          weigh_backward<kQueries>(scores, weights, args.half_alpha, bias, masked,
                                   first_key + thread_row - query, length - query);
        } else {
          weigh_backward<kQueries>(scores, weights, args.half_alpha, NoBias{}, masked,
                                   first_key + thread_row - query, length - query);
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
          const int piece = (2 * step + line_piece) ^ (line & 7);
          store_blocks(line_address + buffer * Config::kScoreBytes + piece * 16, grads + 4 * step);
        }
        fence_async_proxy();
      }
      // The other buffer is free to be written after the barrier.
      if (kBias && leader) wait_added_read();
      named_barrier(1, 256);

      float share[kShare / 2];
      const int score_at = buffer * Config::kScoreBytes;
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
        barrier_arrive(&bar.bias_empty[place.index]);
        if (args.pairs.gradients != nullptr && query >= first_key) {
          UnitWalk& sums = bar.sums[group];
          add_bytes_bf16(args.pairs.gradients + sums.offset,
                         score_tiles + score_at + group * kUnitBytes, kUnitBytes);
          sums.advance();
        }
      }
      wgmma_wait<1>();
      pin(share);
      pin(dv);
      if (leader) barrier_arrive(&bar.dout_empty[place.index]);
      TGR_UNROLL
      for (int i = 0; i < kShare / 8; ++i) {
        reduce_add(dq + i * 1024, share[4 * i], share[4 * i + 1], share[4 * i + 2],
                   share[4 * i + 3]);
      }
      dq += static_cast<std::int64_t>(args.heads) * (kPaddedRows * D);
      wgmma_wait<0>();
      pin(dk);
      if (leader) barrier_arrive(&bar.q_empty[place.index]);
      place.advance();
      buffer ^= 1;
    }
    const AttentionItem item = bar.item;
    // All of the warpgroup have read it before the producer writes the next one.
    named_barrier(2 + group, 128);
    if (leader) {
      barrier_arrive(&bar.v_empty);
      barrier_arrive(&bar.k_empty);
    }
    if (first_key < length) {
      const std::int64_t row = item.first_row + first_key;
      store_tile<D>(dv, args.output_scale,
                    static_cast<__nv_bfloat16*>(args.dv) + row * args.dv_stride +
                        item.head * args.value_width,
                    args.dv_stride, length - first_key, args.value_width);
      store_tile<D>(dk, args.score_scale,
                    static_cast<__nv_bfloat16*>(args.dk) + row * args.dk_stride +
                        item.head * args.query_width,
                    args.dk_stride, length - first_key, args.query_width);
    }
  }
  if (kBias && leader) wait_added();
}

}  // namespace turbogr::cuda
