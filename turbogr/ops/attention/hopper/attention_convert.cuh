// From f32 sums of dQ to bf16 rows. A tile of sums lies in the order in which the threads of the
// backward kernel hold it: piece i of thread t of warpgroup g, four floats, is number (i * 2 + g) *
// 128 + t.
#pragma once

#include "turbogr/ops/attention/hopper/attention_tile.cuh"

namespace turbogr::cuda {

// One block of 256 threads a tile and head; blocks that run together write whole rows. Limited by
// bandwidth.
template <int D>
__global__ void __launch_bounds__(256) convert_kernel(const __grid_constant__ AttentionArgs args) {
  constexpr int kShare = D / 2;
  const AttentionItem tile = args.dq_tiles[static_cast<int>(blockIdx.x) / args.heads];
  if (tile.length == 0) return;
  const int head = static_cast<int>(blockIdx.x) % args.heads;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int query = tile.block * kPaddedRows;
  const std::int64_t row = tile.first_row + query;
  const int column = head * args.query_width + group * kShare;
  const int rows = tile.length - query;
  const int columns = args.query_width - group * kShare;
  BeforeRows<kShare> before;
  if (args.q_before.data != nullptr) {
    before.load({args.q_before.data + row * args.q_before.stride + column, args.q_before.stride},
                rows, columns);
  }
  const auto* sums = reinterpret_cast<const float4*>(
      args.dq_sums + static_cast<std::int64_t>(blockIdx.x) * (kPaddedRows * D));
  float share[kShare / 2];
  TGR_UNROLL
  for (int i = 0; i < kShare / 8; ++i) {
    const float4 four = __ldcs(sums + i * 256 + threadIdx.x);
    share[4 * i] = four.x;
    share[4 * i + 1] = four.y;
    share[4 * i + 2] = four.z;
    share[4 * i + 3] = four.w;
  }
  store_tile<kShare>(share, args.score_scale,
                     static_cast<__nv_bfloat16*>(args.dq) + row * args.dq_stride + column,
                     args.dq_stride, rows, columns, before);
}

template <int D>
void launch_convert(const AttentionArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(args.num_dq_tiles * args.heads);
  convert_kernel<D><<<blocks, 256, 0, stream>>>(args);
  check(cudaGetLastError(), "attention dq");
}

}  // namespace turbogr::cuda
