// The backward kernel: barriers, roles, launch. What the consumers do is in attention_backward.cuh
// and, for width 256, attention_backward_wide.cuh.
#pragma once

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
  char* bias_tiles = k_tile + Config::kSharedBytes - 1024;
  __shared__ BackwardBarriers bar;
  if (threadIdx.x == 0) {
    barrier_init(&bar.item_full, 1);
    barrier_init(&bar.k_full, 1);
    barrier_init(&bar.v_full, 1);
    barrier_init(&bar.k_empty, kBias && !Config::kWide ? 3 : 2);
    barrier_init(&bar.v_empty, 2);
    for (int i = 0; i < Config::kStages; ++i) {
      barrier_init(&bar.q_full[i], 1);
      barrier_init(&bar.dout_full[i], 1);
      barrier_init(&bar.bias_full[i], 1);
      barrier_init(&bar.q_empty[i], 2);
      barrier_init(&bar.dout_empty[i], 2);
      barrier_init(&bar.bias_empty[i], 2);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x >= 256) {
    give_registers<504 - 2 * Config::kRegisters>();
    if (threadIdx.x == 256) {
      backward_produce<D, Config>(args, k_tile, v_tile, q_tiles, dout_tiles, bar);
    }
    if constexpr (kBias && !Config::kWide) {
      if (threadIdx.x == 288) produce_bias<Config>(args, bias_tiles, bar);
    }
  } else {
    take_registers<Config::kRegisters>();
    if constexpr (Config::kWide) {
      wide_backward_consume<D, Config, kBias>(args, k_tile, v_tile, q_tiles, dout_tiles,
                                              score_tiles, bar);
    } else {
      backward_consume<D, Config, kBias>(args, k_tile, v_tile, q_tiles, dout_tiles, score_tiles,
                                         bias_tiles, bar);
    }
  }
}

template <int D, class Config, bool kBias>
void launch_backward(const AttentionArgs& args, cudaStream_t stream) {
  const auto kernel = backward_kernel<D, Config, kBias>;
  constexpr int kBytes = Config::kSharedBytes + (kBias ? Config::kBiasBytes : 0);
  static const int blocks = resident_blocks(kernel, Config::kThreads, kBytes);
  kernel<<<blocks, Config::kThreads, kBytes, stream>>>(args);
  check(cudaGetLastError(), "attention backward");
}

}  // namespace turbogr::cuda
