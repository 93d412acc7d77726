#include "turbogr/ops/attention/hopper/attention_short_pairs.cuh"

namespace turbogr::cuda {
namespace {

template <int D>
struct ShortForwardShared {
  alignas(16) char q[ShortTile<D>::kBytes];
  alignas(16) char k[ShortTile<D>::kBytes];
  alignas(16) char v[ShortTile<D>::kBytes];
  PackPairs pairs;
};

// A block takes a pack and goes through its heads; a warp has 16 of its queries. Limited by
// bandwidth while sequences are short, by the tensor cores' small blocks near 64 tokens.
template <int D>
__global__ void __launch_bounds__(kShortThreads)
    short_forward_kernel(const __grid_constant__ ShortArgs args) {
  extern __shared__ char shared_bytes[];
  auto& shared = *reinterpret_cast<ShortForwardShared<D>*>(shared_bytes);
  const SharedAddress q = shared_address(shared.q);
  const SharedAddress k = shared_address(shared.k);
  const SharedAddress v = shared_address(shared.v);
  PackPairs& pairs = shared.pairs;
  const int warp = short_warp();
  const PackWork work(args);
  pairs.fill_tables(args.bias);

  for (int number = static_cast<int>(blockIdx.x); number < work.count();
       number += static_cast<int>(gridDim.x)) {
    const AttentionPack pack = args.packs[work.pack(number)];
    const PackRows rows{pack.starts, pack.rows};
    const int first_group = rows.first_key_group();
    const std::int64_t row = pack.first_row;
    for (int head = work.first_head(number); head < work.end_head(number); ++head) {
      fetch_tile<D>(q, args.q.at(row, head), args.q.stride, pack.rows, args.query_width);
      fetch_tile<D>(k, args.k.at(row, head), args.k.stride, pack.rows, args.query_width);
      fetch_tile<D>(v, args.v.at(row, head), args.v.stride, pack.rows, args.value_width);
      if (head == work.first_head(number)) {
        pairs.bring(args, pack);
        __syncthreads();
        pairs.fill_bias(args.bias, rows, nullptr);
      }
      wait_fetched();
      __syncthreads();
      RowSums<D> sums;
      sums.clear();
#pragma unroll 1
      for (int group = first_group; group <= warp; ++group) {
        float scores[8];
        multiply_rows<D>(scores, q, warp, k, group);
        pairs.add_to(scores, args.half_alpha, group);
        std::uint32_t weights[4];
        TGR_UNROLL
        for (int i = 0; i < 4; ++i) {
          weights[i] = pack_bf16(silu_of_half(scores[2 * i]), silu_of_half(scores[2 * i + 1]));
        }
        sums.add(weights, v, group);
      }
      __syncthreads();  // the tiles are free
      sums.store(args.output_scale, args.out.at(row, head), args.out.stride, pack.rows,
                 args.value_width);
    }
  }
}

template <int D>
void launch_short_forward_of(const ShortArgs& args, cudaStream_t stream) {
  constexpr int kBytes = sizeof(ShortForwardShared<D>);
  static const int blocks = resident_blocks(short_forward_kernel<D>, kShortThreads, kBytes);
  short_forward_kernel<D><<<static_cast<unsigned>(blocks), kShortThreads, kBytes, stream>>>(args);
  check(cudaGetLastError(), "attention of short sequences");
}

}  // namespace

void launch_short_forward(const ShortArgs& args, int width, cudaStream_t stream) {
  switch (width) {
    case 32:
      return launch_short_forward_of<32>(args, stream);
    case 64:
      return launch_short_forward_of<64>(args, stream);
    case 128:
      return launch_short_forward_of<128>(args, stream);
    default:
      return launch_short_forward_of<256>(args, stream);
  }
}

}  // namespace turbogr::cuda
