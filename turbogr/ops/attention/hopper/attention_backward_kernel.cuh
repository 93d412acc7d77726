// The backward kernels by blocks of keys: barriers, roles, launch. What the consumers do is in
// attention_backward.cuh, attention_key_gradient.cuh and, for width 256,
// attention_backward_wide.cuh.
#pragma once

#include "turbogr/ops/attention/hopper/attention_backward.cuh"
#include "turbogr/ops/attention/hopper/attention_backward_wide.cuh"
#include "turbogr/ops/attention/hopper/attention_key_gradient.cuh"

namespace turbogr::cuda {

template <int D, class Config, bool kBias>
__global__ void __launch_bounds__(Config::kThreads, 1)
    backward_kernel(const __grid_constant__ AttentionArgs args) {
  using Places = BackwardPlaces<Config, kBias>;
  extern __shared__ char shared[];
  auto& state = *reinterpret_cast<BackwardState*>(shared + Places::kState - kSharedStart);
  if (threadIdx.x == 0) {
    check_shared_start(shared);
    barrier_init(Places::barrier(kItemFull), 1);
    barrier_init(Places::barrier(kKeyFull), 1);
    barrier_init(Places::barrier(kValueFull), 1);
    barrier_init(Places::barrier(kKeyEmpty), kBias && !Config::kWide ? 3 : 2);
    barrier_init(Places::barrier(kValueEmpty), 2);
    for (int i = 0; i < Config::kStages; ++i) {
      barrier_init(Places::barrier(kQueryFull + i), 1);
      barrier_init(Places::barrier(kDoutFull + i), 1);
      barrier_init(Places::barrier(kBiasFull + i), 1);
      barrier_init(Places::barrier(kQueryEmpty + i), 2);
      barrier_init(Places::barrier(kDoutEmpty + i), 2);
      barrier_init(Places::barrier(kBiasEmpty + i), Config::kSplit ? 8 : 2);
    }
    barrier_init_fence();
  }
  if constexpr (kBias && !Config::kWide) {
    auto* hidden = reinterpret_cast<__half*>(shared + Places::kHiddenLine - kSharedStart);
    if (threadIdx.x < kUnit) hidden[threadIdx.x] = __float2half(kHidden);
  }
  __syncthreads();
  if (threadIdx.x >= 256) {
    give_registers<504 - 2 * Config::kRegisters>();
    if (threadIdx.x == 256) {
      backward_produce<D, Config, Places>(args, state);
    }
    if constexpr (kBias && !Config::kWide) {
      if (threadIdx.x == 288) produce_bias<Config, Places>(args, state);
    }
  } else {
    take_registers<Config::kRegisters>();
    if constexpr (Config::kWide) {
      wide_backward_consume<D, Config, kBias>(args, state);
    } else if constexpr (Config::kSplit) {
      key_gradient_consume<D, Config, kBias>(args, state);
    } else {
      backward_consume<D, Config, kBias>(args, state);
    }
  }
}

template <int D, class Config, bool kBias>
void launch_backward(const AttentionArgs& args, cudaStream_t stream) {
  const auto kernel = backward_kernel<D, Config, kBias>;
  constexpr int kBytes = BackwardPlaces<Config, kBias>::kBytes;
  static const int blocks = resident_blocks(kernel, Config::kThreads, kBytes);
  kernel<<<blocks, Config::kThreads, kBytes, stream>>>(args);
  check(cudaGetLastError(), "attention backward");
}

}  // namespace turbogr::cuda
