// The backward kernel: barriers, roles, launch. What the consumers do is in attention_backward.cuh
// and, for width 256, attention_backward_wide.cuh.
#pragma once

#include <algorithm>

#include "turbogr/cuda/attention_backward.cuh"
#include "turbogr/cuda/attention_backward_wide.cuh"

namespace turbogr::cuda {

template <int D, class Config, bool kBias>
__global__ void __launch_bounds__(Config::kThreads, 1)
    backward_kernel(const __grid_constant__ AttentionArgs args) {
  extern __shared__ char raw[];
  char* k_tile = raw + (-static_cast<int>(shared_address(raw)) & 1023);
  char* v_tile = k_tile + Config::kKeyBytes;
  char* q_tiles = v_tile + Config::kKeyBytes;
  char* dout_tiles = q_tiles + Config::kStages * Config::kQueryBytes;
  char* score_tiles = dout_tiles + Config::kStages * Config::kQueryBytes;
  auto* bias_stages =
      reinterpret_cast<typename Config::Bias*>(k_tile + Config::kSharedBytes - 1024);
  __shared__ BackwardBarriers bar;
  __shared__ ShortGapTables tables;
  __shared__ int time_bins[kBias && !Config::kWide ? 8 * (kShortBuckets + 4) : 1];
  if constexpr (kBias) {
    for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(time_bins) / 4);
         i += Config::kThreads) {
      time_bins[i] = 0;
    }
    tables.fill(args.bias.time, args.bias.weight_scale, static_cast<int>(threadIdx.x),
                Config::kThreads);
    for (int i = static_cast<int>(threadIdx.x); i < kTimeCopies * kTimeBuckets;
         i += Config::kThreads) {
      __stcg(block_time_bins(args.bias) + i, 0.f);
    }
    __threadfence();
  }
  if (threadIdx.x == 0) {
    barrier_init(&bar.k_full, 1);
    barrier_init(&bar.v_full, 1);
    barrier_init(&bar.k_empty, 2);
    barrier_init(&bar.v_empty, 2);
    for (int i = 0; i < Config::kStages; ++i) {
      barrier_init(&bar.q_full[i], 1);
      barrier_init(&bar.dout_full[i], 1);
      // With bias each warp reads the stage by itself, and so frees it by itself.
      barrier_init(&bar.q_empty[i], kBias && !Config::kWide ? 8 : 2);
      barrier_init(&bar.dout_empty[i], 2);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x >= 256) {
    give_registers<24>();
    if (threadIdx.x == 256) {
      backward_produce<D, Config, kBias>(args, k_tile, v_tile, q_tiles, dout_tiles, bias_stages,
                                         bar);
    }
    if constexpr (kBias) {
      if (threadIdx.x >= 288) backward_help<Config>(args, score_tiles, bar);
    }
  } else {
    take_registers<240>();
    if constexpr (Config::kWide) {
      wide_backward_consume<D, Config, kBias>(args, k_tile, v_tile, q_tiles, dout_tiles,
                                              score_tiles, bar, tables);
    } else {
      backward_consume<D, Config, kBias>(args, k_tile, v_tile, q_tiles, dout_tiles, score_tiles,
                                         bias_stages, bar, tables, time_bins);
    }
    if constexpr (kBias) {
      __threadfence();
      named_barrier(2, 256);
      if (args.bias.dtime != nullptr && threadIdx.x < kTimeBuckets) {
        float sum = 0;
        for (int copy = 0; copy < kTimeCopies; ++copy) {
          sum += __ldcg(block_time_bins(args.bias) + copy * kTimeBuckets + threadIdx.x);
        }
        atomicAdd(args.bias.dtime + threadIdx.x, sum * args.bias.gradient_scale);
      }
    }
  }
}

template <int D, class Config, bool kBias>
void launch_backward(const AttentionArgs& args, cudaStream_t stream) {
  const auto kernel = backward_kernel<D, Config, kBias>;
  constexpr int kBytes = Config::kSharedBytes + (kBias ? Config::kBiasBytes : 0);
  static const int blocks = std::min(resident_blocks(kernel, Config::kThreads, kBytes), kMaxBlocks);
  kernel<<<blocks, Config::kThreads, kBytes, stream>>>(args);
  check(cudaGetLastError(), "attention backward");
}

}  // namespace turbogr::cuda
