// What the kernels by tiles of keys share (attention_backward.cuh, attention_key_gradient.cuh,
// attention_backward_wide.cuh): a block is a producer and two warpgroups; it keeps a block of keys
// and walks the queries that see it, with scores transposed (keys are rows).
#pragma once

#include "turbogr/ops/attention/hopper/attention_pairs.cuh"
#include "turbogr/ops/attention/hopper/attention_products.cuh"
#include "turbogr/ops/attention/hopper/attention_tile.cuh"

namespace turbogr::cuda {

// kSplit: dQ has a kernel of its own (attention_query_gradient.cuh).
template <int D, int kKeys_, bool kSplit_>
struct KeyTileConfig {
  static constexpr bool kSplit = kSplit_;
  static constexpr int kStages = 2;
  static constexpr int kKeys = kKeys_;
  static constexpr int kQueries = 64;
  static constexpr int kThreads = 384;
  static constexpr int kKeyBytes = kKeys * D * 2;
  static constexpr int kQueryBytes = kQueries * D * 2;
  static constexpr int kScoreBytes = kKeys * kQueries * 2;
};
// Widths up to 128: each warpgroup has 64 keys.
template <int D, bool kSplit>
struct NarrowConfig : KeyTileConfig<D, 128, kSplit> {
  static constexpr bool kWide = false;
  // Of a consumer; the producers have what is left of 3 x 168.
  static constexpr int kRegisters = D == 128 ? 240 : 232;
  static constexpr int kScoreBuffers = kSplit ? 0 : 2;  // split, they stay in registers
  static constexpr int kBiasBytes = NarrowConfig::kStages * NarrowConfig::kScoreBytes;
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
  RingPlace<Config::kStages> place;
  int phase = 0;
  ItemSource source(args);
  for (;;) {
    AttentionItem item;
    const bool more = source.take(item);
    int row = item.first_row + item.block * Config::kKeys;
    barrier_wait(Places::barrier(kValueEmpty), phase ^ 1);
    if (more) {
      load_tile<D, Config::kKeys>(Places::kValues, &args.v_map, Places::barrier(kValueFull),
                                  item.head, row);
    }
    barrier_wait(Places::barrier(kKeyEmpty), phase ^ 1);
    if (!more) item.length = -1;
    state.item = item;
    barrier_arrive(Places::barrier(kItemFull));
    if (!more) {
      barrier_arrive(Places::barrier(kKeyFull));
      break;
    }
    load_tile<D, Config::kKeys>(Places::kKeys, &args.k_map, Places::barrier(kKeyFull), item.head,
                                row);
    phase ^= 1;
    const int end = item.first_row + item.length;
#pragma unroll 1
    for (; row < end; row += Config::kQueries) {
      const int stage = place.index();
      const int at = stage * Config::kQueryBytes;
      barrier_wait(Places::barrier(kQueryEmpty + stage), place.phase() ^ 1);
      load_tile<D, Config::kQueries>(Places::kQueries + at, &args.q_map,
                                     Places::barrier(kQueryFull + stage), item.head, row);
      barrier_wait(Places::barrier(kDoutEmpty + stage), place.phase() ^ 1);
      load_tile<D, Config::kQueries>(Places::kDouts + at, &args.dout_map,
                                     Places::barrier(kDoutFull + stage), item.head, row);
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

// The tiles of a block as operands whose sum runs over columns, keys and values of this warpgroup;
// those of queries with rows along the sum, too.
template <int D, class Places>
struct NarrowOperands {
  static constexpr int kLine = PanelShape<D>::kLineBytes;
  Operand<D> k, v, q, dout;

  __device__ explicit NarrowOperands(const Consumer& thread)
      : k(Places::kKeys + thread.group * 64 * kLine, 16),
        v(Places::kValues + thread.group * 64 * kLine, 16),
        q(Places::kQueries, 64 * kLine),
        dout(Places::kDouts, 64 * kLine) {}
};

// Where this lane's line of four 8 x 8 blocks begins in a tile of scores of 128 keys. The swizzle
// exchanges pieces of 16 bytes, so that those of the next 16 queries are one bit away.
__device__ __forceinline__ int lane_score_offset(const Consumer& thread) {
  const int lane = thread.lane;
  return piece_offset(threadIdx.x / 32 * 16 + lane % 16, lane / 16);
}

// weigh_backward of the tile in a stage. `ahead`: of its first query to the warpgroup's first key;
// `left`: queries from its first to the sequence's end.
template <class Config, class Places, bool kBias, int R>
__device__ __forceinline__ void weigh_stage(const Consumer& thread, float (&scores)[R],
                                            std::uint32_t (&weights)[R / 2], float half_alpha,
                                            const RingPlace<Config::kStages>& place, int lane_at,
                                            int ahead, int left) {
  constexpr int kQueries = Config::kQueries;
  if constexpr (kBias) {
    barrier_wait(Places::barrier(kBiasFull + place.index()), place.phase());
    // The second warpgroup sees none of the first queries, and there is no bias to say so.
    const SharedAddress bias =
        ahead < 0 ? Places::kHiddenLine
                  : Places::kBiases + place.index() * Config::kScoreBytes + lane_at;
    weigh_backward<kQueries>(scores, weights, half_alpha, SharedBias{bias}, false, 0, 0);
  } else {
    // Made here: registers are scarce.
    const int row = threadIdx.x / 32 % 4 * 16 + thread.lane / 4;
    weigh_backward<kQueries>(scores, weights, half_alpha, NoBias{}, ahead < 63 || left < kQueries,
                             row - ahead, left);
  }
}

// Columns from `column` on of a head's dK and dV, 64 keys from `first_key` on.
template <int N>
__device__ __forceinline__ void store_key_gradients(const AttentionArgs& args,
                                                    const AttentionItem& item, int first_key,
                                                    int column, const float (&dk)[N / 2],
                                                    const float (&dv)[N / 2]) {
  const std::int64_t row = item.first_row + first_key;
  store_tile<N>(dv, args.output_scale,
                static_cast<__nv_bfloat16*>(args.dv) + row * args.dv_stride +
                    item.head * args.value_width + column,
                args.dv_stride, item.length - first_key, args.value_width - column);
  store_tile<N>(dk, args.score_scale,
                static_cast<__nv_bfloat16*>(args.dk) + row * args.dk_stride +
                    item.head * args.query_width + column,
                args.dk_stride, item.length - first_key, args.query_width - column);
}

// The end of a tile of keys: what the producer waits for, and results. dk and dv are done.
template <int D, class Config, class Places>
__device__ __forceinline__ void finish_narrow_tile(const Consumer& thread,
                                                   const AttentionArgs& args,
                                                   const BackwardState& state, int release,
                                                   const float (&dk)[D / 2],
                                                   const float (&dv)[D / 2]) {
  const int group = thread.group;
  const AttentionItem item = state.item;
  // All of the warpgroup have read it before the producer writes the next one.
  named_barrier(2 + group, 128);
  if (thread.leader) {
    if constexpr (Config::kSplit) {
      barrier_arrive(Places::barrier(kQueryEmpty + release));
      barrier_arrive(Places::barrier(kDoutEmpty + release));
    }
    barrier_arrive(Places::barrier(kValueEmpty));
    barrier_arrive(Places::barrier(kKeyEmpty));
  }
  const int first_key = item.block * Config::kKeys + 64 * group;
  if (first_key < item.length) store_key_gradients<D>(args, item, first_key, 0, dk, dv);
}

}  // namespace turbogr::cuda
