#include "turbogr/ops/attention/hopper/attention_short_pairs.cuh"

namespace turbogr::cuda {
namespace {

using PairTile = ShortTile<kPackRows>;
// Floats from one query to the next in a matrix of pairs: eight rows in different banks.
constexpr int kPairPitch = kPackRows + 8;
static_assert(kPackRows * kPairPitch * sizeof(float) == 2 * PairTile::kBytes);

template <int D>
struct ShortBackwardShared {
  alignas(16) char q[ShortTile<D>::kBytes];
  alignas(16) char k[ShortTile<D>::kBytes];
  alignas(16) char v[ShortTile<D>::kBytes];
  alignas(16) char dout[ShortTile<D>::kBytes];
  // A row a query: weights and gradients of scores of one head, at the end sums over heads.
  alignas(16) float sums[kPackRows * kPairPitch];
  int time_bins[kTimeBuckets + 3];
  unsigned largest[kShortWarps];
  uint2 buckets[kPairBlocks][32];
  PackPairs pairs;

  __device__ SharedAddress weights() const { return shared_address(sums); }
  __device__ SharedAddress gradients() const { return weights() + PairTile::kBytes; }
};

// Numbers as integers, which shared memory adds by itself, where it would have to be asked again
// and again for floats; and in any order to the same sum. The largest of a pack takes 19 bits, so
// that its 2,080 pairs fit into 31. What is lost is a thousandth of what rounding to bf16 would
// lose.
struct FixedPoint {
  float scale = 0;
  float inverse = 0;

  __device__ explicit FixedPoint(unsigned largest_bits) {
    const int exponent = max(static_cast<int>(largest_bits >> 23), 27);
    scale = __uint_as_float(static_cast<unsigned>(127 + 127 + 18 - exponent) << 23);
    inverse = __uint_as_float(static_cast<unsigned>(exponent - 18) << 23);
    // Where a number is not finite, neither is a sum.
    if (largest_bits >= 0x7f800000u) inverse = __uint_as_float(0x7fffffffu);
  }
};

// Gradients of the scores of a warp's pairs, summed over heads in f32: what the tables want.
struct PairSums {
  float at[kShortWarps][8];

  __device__ __forceinline__ void clear() {
    TGR_UNROLL
    for (auto& block : at) {
      TGR_UNROLL
      for (float& x : block) x = 0;
    }
  }

  // The bits of the largest, without its sign, in the warp; not a number is larger than all.
  __device__ unsigned largest() const {
    unsigned bits = 0;
    TGR_UNROLL
    for (const auto& block : at) {
      TGR_UNROLL
      for (const float x : block) bits = max(bits, __float_as_uint(x) & 0x7fffffffu);
    }
    return __reduce_max_sync(~0u, bits);
  }

  // Adds to the bins of the pairs' buckets.
  __device__ void add_times(const uint2 (*buckets)[32], int first_group, float scale,
                            int* bins) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    TGR_UNROLL
    for (int group = 0; group < kShortWarps; ++group) {
      if (group < first_group || group > short_warp()) continue;
      const uint2 packed = buckets[PackPairs::block_of(group)][lane];
      TGR_UNROLL
      for (int i = 0; i < 8; ++i) {
        const auto bucket = (i < 4 ? packed.x : packed.y) >> (i % 4 * 8) & 255;
        if (bucket != kNoBucket) atomicAdd(bins + bucket, __float2int_rn(scale * at[group][i]));
      }
    }
  }

  __device__ void store(float* matrix) const {
    TGR_UNROLL
    for (int group = 0; group < kShortWarps; ++group) {
      TGR_UNROLL
      for (int i = 0; i < 8; i += 2) {
        const PairPlace place(i);
        *reinterpret_cast<float2*>(matrix + (kGroup * short_warp() + place.row) * kPairPitch +
                                   kGroup * group + place.column) =
            make_float2(at[group][i], at[group][i + 1]);
      }
    }
  }
};

// The sum of one difference query - key, of every second query.
__device__ float diagonal_sum(const float* matrix) {
  const int difference = static_cast<int>(threadIdx.x) % kPackRows;
  float sum = 0;
  TGR_UNROLL
  for (int i = 0; i < kPackRows; i += 2) {
    const int query = i + static_cast<int>(threadIdx.x) / kPackRows;
    if (query >= difference) sum += matrix[query * kPairPitch + query - difference];
  }
  return sum;
}

// What a pack's block of queries and keys gives: packed weights and gradients of scores, which also
// go to shared memory for the products along queries.
template <int D>
__device__ __forceinline__ void weigh_block(const ShortArgs& args,
                                            const ShortBackwardShared<D>& shared, int group,
                                            float (&sums)[8], std::uint32_t (&gradients)[4]) {
  const int warp = short_warp();
  float scores[8];
  float dweights[8];
  multiply_rows<D>(scores, shared_address(shared.q), warp, shared_address(shared.k), group);
  multiply_rows<D>(dweights, shared_address(shared.dout), warp, shared_address(shared.v), group);
  shared.pairs.add_to(scores, args.half_alpha, group);
  std::uint32_t weights[4];
  TGR_UNROLL
  for (int i = 0; i < 4; ++i) {
    const SiluParts a = silu_parts(scores[2 * i]);
    const SiluParts b = silu_parts(scores[2 * i + 1]);
    const float first = dweights[2 * i] * a.derivative;
    const float second = dweights[2 * i + 1] * b.derivative;
    sums[2 * i] += first;
    sums[2 * i + 1] += second;
    weights[i] = pack_bf16(a.value, b.value);
    gradients[i] = pack_bf16(first, second);
  }
  const int at = PairTile::block(warp, group);
  store_blocks(shared.weights() + at, weights);
  store_blocks(shared.gradients() + at, gradients);
}

// dv or dk: the warp's 16 keys, over the queries that see them.
template <int D>
__device__ __forceinline__ void sum_queries(RowSums<D>& sums, SharedAddress pairs,
                                            SharedAddress rows, int last_group) {
  sums.clear();
#pragma unroll 1
  for (int group = short_warp(); group <= last_group; ++group) {
    std::uint32_t turned[4];
    load_blocks_transposed(pairs + PairTile::turned_block(group, short_warp()), turned);
    sums.add(turned, rows, group);
  }
}

// A block takes a pack and goes through its heads. A warp has 16 of its queries, and for dk and dv
// 16 of its keys. Table gradients are summed a pack: packs come in any order.
template <int D>
__global__ void __launch_bounds__(kShortThreads)
    short_backward_kernel(const __grid_constant__ ShortArgs args) {
  extern __shared__ char shared_bytes[];
  auto& shared = *reinterpret_cast<ShortBackwardShared<D>*>(shared_bytes);
  const SharedAddress q = shared_address(shared.q);
  const SharedAddress k = shared_address(shared.k);
  const SharedAddress v = shared_address(shared.v);
  const SharedAddress dout = shared_address(shared.dout);
  PackPairs& pairs = shared.pairs;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = short_warp();
  const BiasArgs& bias = args.bias;
  const PackWork work(args);
  pairs.fill_tables(bias);
  const bool position = bias.position_sums.words != nullptr;
  const bool time = bias.time_sums.words != nullptr;
  for (int i = thread; i < kTimeBuckets; i += kShortThreads) shared.time_bins[i] = 0;

  for (int number = static_cast<int>(blockIdx.x); number < work.count();
       number += static_cast<int>(gridDim.x)) {
    const AttentionPack pack = args.packs[work.pack(number)];
    const PackRows rows{pack.starts, pack.rows};
    const int first_group = rows.first_key_group();
    const int last_group = rows.last_query_group();
    const std::int64_t row = pack.first_row;
    PairSums pair_sums;
    pair_sums.clear();
    for (int head = work.first_head(number); head < work.end_head(number); ++head) {
      fetch_tile<D>(q, args.q.at(row, head), args.q.stride, pack.rows, args.query_width);
      fetch_tile<D>(k, args.k.at(row, head), args.k.stride, pack.rows, args.query_width);
      fetch_tile<D>(v, args.v.at(row, head), args.v.stride, pack.rows, args.value_width);
      fetch_tile<D>(dout, args.dout.at(row, head), args.dout.stride, pack.rows, args.value_width);
      if (head == work.first_head(number)) {
        pairs.bring(args, pack);
        __syncthreads();
        pairs.fill_bias(bias, rows, shared.buckets);
      }
      wait_fetched();
      __syncthreads();
      RowSums<D> sums;
      sums.clear();
      TGR_UNROLL
      for (int group = 0; group < kShortWarps; ++group) {
        if (group < first_group || group > warp) continue;
        std::uint32_t gradients[4];
        weigh_block<D>(args, shared, group, pair_sums.at[group], gradients);
        sums.add(gradients, k, group);
      }
      if (args.q_before.data != nullptr) {
        sums.store_through_silu(args.score_scale,
                                {args.q_before.at(row, head), args.q_before.stride},
                                args.dq.at(row, head), args.dq.stride, pack.rows, args.query_width);
      } else {
        sums.store(args.score_scale, args.dq.at(row, head), args.dq.stride, pack.rows,
                   args.query_width);
      }
      __syncthreads();
      sum_queries<D>(sums, shared.weights(), dout, last_group);
      sums.store(args.output_scale, args.dv.at(row, head), args.dv.stride, pack.rows,
                 args.value_width);
      sum_queries<D>(sums, shared.gradients(), q, last_group);
      __syncthreads();  // the tiles are free
      sums.store(args.score_scale, args.dk.at(row, head), args.dk.stride, pack.rows,
                 args.query_width);
    }
    if (!position && !time) continue;
    if (position) pair_sums.store(shared.sums);
    if (time) {
      const unsigned largest = pair_sums.largest();
      if (thread % 32 == 0) shared.largest[warp] = largest;
    }
    __syncthreads();
    if (position) {
      const int difference = thread % kPackRows;
      const float sum = diagonal_sum(shared.sums);
      if (difference < bias.position_sums.size) bias.position_sums.add(0, difference, sum);
    }
    if (time) {
      unsigned largest = 0;
      for (const unsigned bits : shared.largest) largest = max(largest, bits);
      const FixedPoint fixed(largest);
      pair_sums.add_times(shared.buckets, first_group, fixed.scale, shared.time_bins);
      __syncthreads();
      for (int i = thread; i < kTimeBuckets; i += kShortThreads) {
        bias.time_sums.add(static_cast<int>(blockIdx.x) % kTimeSumCopies, i,
                           fixed.inverse * static_cast<float>(shared.time_bins[i]));
        shared.time_bins[i] = 0;
      }
    }
    __syncthreads();
  }
}

template <int D>
void launch_short_backward_of(const ShortArgs& args, cudaStream_t stream) {
  constexpr int kBytes = sizeof(ShortBackwardShared<D>);
  static const int blocks = resident_blocks(short_backward_kernel<D>, kShortThreads, kBytes);
  short_backward_kernel<D><<<static_cast<unsigned>(blocks), kShortThreads, kBytes, stream>>>(args);
  check(cudaGetLastError(), "attention of short sequences, backward");
}

}  // namespace

void launch_short_backward(const ShortArgs& args, int width, cudaStream_t stream) {
  switch (width) {
    case 32:
      return launch_short_backward_of<32>(args, stream);
    case 64:
      return launch_short_backward_of<64>(args, stream);
    case 128:
      return launch_short_backward_of<128>(args, stream);
    default:
      return launch_short_backward_of<256>(args, stream);
  }
}

}  // namespace turbogr::cuda
